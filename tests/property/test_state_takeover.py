"""Peers of several allocation versions at once: recoverers, zombies, the dead, over one store.

Turn by turn, in any order, with lost answers and crashes. Whatever was acknowledged to a writer is
in what the owners of the next ready version know, once, and in order; after them nobody of before
can append. Readiness is as in a job: a version is ready when all its logs are open, and never after
a newer one has begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.turns import Actor, InlineThreads, TurnStore, copy_of
from tests.support.log.records import noted, notes, notes_of

from onyx.errors import Fenced, StateError, Unavailable
from onyx.ids import NO_POSITION
from onyx.settings import StateSettings
from onyx.state import collecting, log, reading, recovery
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.recovery import Recovered, recover
from onyx.storage.memory import MemoryBlobStore

SHARDS = 4
SETTINGS = StateSettings()
TURNS_MAX = 400


@pytest.fixture(autouse=True, scope="module")
def turn_by_turn() -> Iterator[None]:
    """No threads of their own, and snapshots in many parts."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (recovery, collecting):
            patch.setattr(module, "ThreadPoolExecutor", InlineThreads)
        patch.setattr(reading, "AHEAD_CHUNKS_MAX", 2)
        patch.setattr(log, "PART_BYTES", 20)
        patch.setattr(log, "_SLICE_RECORDS", 3)
        yield


@dataclass
class World:
    """What happens, and what has been promised."""

    store: MemoryBlobStore = field(default_factory=MemoryBlobStore)
    actors: list[Actor] = field(default_factory=list)
    version: int = 0
    peers: int = 0
    opened: set[tuple[int, int]] = field(default_factory=set)
    ready: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    """Each version with what had been acknowledged by shard when it became ready."""
    acked: dict[int, list[int]] = field(default_factory=lambda: {n: [] for n in range(SHARDS)})
    numbers: int = 0

    def reallocate(self, peers: int) -> None:
        self.version, self.peers = self.version + 3, peers
        for rank in range(peers):
            self.actors.append(Actor(Peer(self, self.version, rank, peers).live))

    def look(self) -> None:
        """The newest version becomes ready when all its logs are open."""
        ranks = {rank for version, rank in self.opened if version == self.version}
        if len(ranks) == self.peers:
            self.ready[self.version] = {n: list(acked) for n, acked in self.acked.items()}

    @property
    def live(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.done]


class Peer:
    """One virtual peer of the task: a list of numbers a shard is all its state."""

    def __init__(self, world: World, version: int, rank: int, peers: int) -> None:
        self.world = world
        self.version = version
        self.rank = rank
        self.shards = range(rank, SHARDS, peers)
        self.state: dict[int, list[int]] = {}

    def live(self, actor: Actor) -> None:
        world = self.world
        store = TurnStore(actor, world.store)
        try:
            recovered = self.recovered(store)
            self.state = {n: numbers_of(recovered, n) for n in self.shards}
            ids = recovered.ids.tolist()
            for numbers in self.state.values():
                assert set(numbers) <= set(ids), "state and ids disagree"
            world.opened.add((self.version, self.rank))
            world.look()
            while self.version not in world.ready:
                actor.pause()
            self.check_that_nothing_promised_is_missing()
            for step in range(1, 40):
                if step % 7 == 3:
                    self.snapshot(recovered)
                else:
                    self.append(recovered)
        except Fenced:
            assert self.version < world.version, "fenced without a newer version"

    def check_that_nothing_promised_is_missing(self) -> None:
        for shard in self.shards:
            check(self.state[shard], self.world.ready[self.version][shard])

    def recovered(self, store: TurnStore) -> Recovered:
        while True:
            try:
                ready = max(self.world.ready, default=NO_POSITION)
                return recover(
                    store,
                    "job",
                    "task",
                    self.version,
                    self.rank,
                    self.shards,
                    SETTINGS,
                    ready=ready,
                )
            except Unavailable:
                continue

    def append(self, recovered: Recovered) -> None:
        """Numbers for some shards, acknowledged when durable."""
        changes, numbers = {}, []
        for shard in self.shards:
            self.world.numbers += 1
            if self.world.numbers % 3:
                changes[shard] = ShardChange(notes(self.world.numbers))
                numbers.append(self.world.numbers)
        ids = np.array(numbers, dtype=np.uint64)
        chunk = Chunk(changes, ids, ids)
        repeated(lambda: recovered.log.append(chunk))
        for shard, change in changes.items():
            self.state[shard] += noted(change.records)
            self.world.acked[shard] += noted(change.records)

    def snapshot(self, recovered: Recovered) -> None:
        every = [n for numbers in self.state.values() for n in numbers]
        ids = np.array(every, dtype=np.uint64)
        shards = {n: ShardChange(notes(*numbers)) for n, numbers in self.state.items()}
        chunk = Chunk(shards, ids, ids)
        repeated(lambda: recovered.log.snapshot(chunk))
        recovered.log.collect()


def repeated(work):  # type: ignore[no-untyped-def]
    while True:
        try:
            return work()
        except Unavailable:
            continue


def numbers_of(recovered: Recovered, shard: int) -> list[int]:
    return notes_of(recovered.shards[shard])


def check(found: list[int], promised: list[int]) -> None:
    assert len(found) == len(set(found)), "something is there twice"
    # A writer that was slow may hear of what it wrote after its successor has begun.
    assert [number for number in found if number in promised] == sorted(promised)


CHOICES = st.lists(
    st.tuples(
        st.sampled_from([*["turn"] * 30, "before", "after", "kill", "reallocate"]),
        st.integers(0, 5),
        st.integers(1, 25),
    ),
    max_size=60,
)


def play(choices: list[tuple[str, int, int]]) -> None:
    world = World()
    world.reallocate(2)
    turns = 0
    for what, who, many in choices:
        if what == "reallocate":
            world.reallocate(who % 3 + 1)
            continue
        if not world.live:
            continue
        actor = world.live[-1 - who % len(world.live)]
        if what == "kill":
            actor.kill()
            continue
        if what != "turn":
            actor.fault = what
        for _ in range(many):
            if not actor.done:
                actor.turn()
                turns += 1
    finish(world)


def finish(world: World) -> None:
    """One more version, and everybody runs until nothing happens any more."""
    world.reallocate(1)
    for _ in range(TURNS_MAX):
        for actor in world.live:
            actor.turn()
    for actor in world.actors:
        actor.kill()
    for actor in world.actors:
        if actor.error is not None:
            raise actor.error
    assert world.version in world.ready, "the last version never became ready"
    lose_a_file(world)
    check_all(world, world.store)


def check_all(world: World, store: MemoryBlobStore) -> None:
    version, ready = world.version + 1, max(world.ready)
    found = recover(store, "job", "task", version, 0, range(SHARDS), SETTINGS, ready=ready)
    for shard in range(SHARDS):
        numbers = numbers_of(found, shard)
        check(numbers, world.acked[shard])
        assert set(numbers) <= set(found.ids.tolist())


def lose_a_file(world: World) -> None:
    """One is named that is gone and needed, each time another one."""
    names = [each.name for each in world.store.list("")]
    gone = names[world.numbers % len(names)]
    store = copy_of(world.store)
    store.delete(gone)
    named = gone
    try:
        check_all(world, store)
    except StateError as error:
        named = str(error)
    assert gone in named


@given(CHOICES)
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
def test_what_was_acknowledged_is_what_the_next_owners_know(
    choices: list[tuple[str, int, int]],
) -> None:
    play(choices)
