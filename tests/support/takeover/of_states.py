"""Peers of a task with state: recoverers, zombies, the dead.

Whatever was acknowledged to a writer is in what the owners of the next ready version know, once,
and in order; after them nobody of before can append. Readiness is as in a job: a version is ready
when all its logs are open, and never after a newer one has begun.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.support.log.records import noted, notes, notes_of
from tests.support.takeover.world import Medium, StoreOf, World, repeated

from onyx.errors import Fenced
from onyx.ids import NO_POSITION
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.recovery import RecoveredState, recover

SHARDS = 4
SETTINGS = StateSettings()
TURNS_MAX = 400


class StatesWorld(World):
    def __init__(self, medium: Medium) -> None:
        super().__init__(medium)
        self.peers = 0
        self.opened: set[tuple[int, int]] = set()
        self.ready: dict[int, dict[int, list[int]]] = {}
        """Each version with what had been acknowledged by shard when it became ready."""
        self.acked: dict[int, list[int]] = {number: [] for number in range(SHARDS)}

    def reallocate(self, who: int) -> None:
        self.version, self.peers = self.version + 3, who % 3 + 1
        for rank in range(self.peers):
            self.enter(Peer(self, self.version, rank, self.peers).live)

    def look(self) -> None:
        """The newest version becomes ready when all its logs are open."""
        ranks = {rank for version, rank in self.opened if version == self.version}
        if len(ranks) == self.peers:
            self.ready[self.version] = {n: list(acked) for n, acked in self.acked.items()}

    def finish(self) -> None:
        """One more version, and everybody runs until nothing happens any more."""
        self.reallocate(0)
        self.let_go_on(TURNS_MAX)
        assert self.version in self.ready, "the last version never became ready"
        self.lose_a_file("")
        self.check(self.store)

    def check(self, store: Any) -> None:
        version, ready = self.version + 1, max(self.ready)
        found = recover(store, "job", "task", version, 0, range(SHARDS), SETTINGS, ready=ready)
        for shard in range(SHARDS):
            numbers = numbers_of(found, shard)
            check(numbers, self.acked[shard])
            assert set(numbers) <= set(found.ids.tolist())


class Peer:
    """One virtual peer of the task: a list of numbers a shard is all its state."""

    def __init__(self, world: StatesWorld, version: int, rank: int, peers: int) -> None:
        self.world = world
        self.version = version
        self.rank = rank
        self.shards = range(rank, SHARDS, peers)
        self.state: dict[int, list[int]] = {}

    def live(self, store: StoreOf) -> None:
        world = self.world
        try:
            recovered = self.recovered(store)
            self.state = {n: numbers_of(recovered, n) for n in self.shards}
            ids = recovered.ids.tolist()
            for numbers in self.state.values():
                assert set(numbers) <= set(ids), "state and ids disagree"
            world.opened.add((self.version, self.rank))
            world.look()
            while self.version not in world.ready:
                store.pause()
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

    def recovered(self, store: StoreOf) -> RecoveredState:
        return repeated(
            lambda: recover(
                store,
                "job",
                "task",
                self.version,
                self.rank,
                self.shards,
                SETTINGS,
                ready=max(self.world.ready, default=NO_POSITION),
            )
        )

    def append(self, recovered: RecoveredState) -> None:
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

    def snapshot(self, recovered: RecoveredState) -> None:
        every = [n for numbers in self.state.values() for n in numbers]
        ids = np.array(every, dtype=np.uint64)
        shards = {n: ShardChange(notes(*numbers)) for n, numbers in self.state.items()}
        chunk = Chunk(shards, ids, ids)
        repeated(lambda: recovered.log.snapshot(chunk))
        recovered.log.collect()


def numbers_of(recovered: RecoveredState, shard: int) -> list[int]:
    return notes_of(recovered.shards[shard])


def check(found: list[int], promised: list[int]) -> None:
    assert len(found) == len(set(found)), "something is there twice"
    # A writer that was slow may hear of what it wrote after its successor has begun.
    assert [number for number in found if number in promised] == sorted(promised)
