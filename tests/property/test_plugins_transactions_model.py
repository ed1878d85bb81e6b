"""Whatever fails, and whoever takes over when: every row is there exactly once.

A model of what the task does around a writer: segments that were not committed are written again by
whoever is there after it, the last committed token is finished by them, and the dead are fenced
only when that is done. Zombies go on whenever they like.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.plugin_context import plugin_context
from tests.support.jobs.transactions import AFTER, BEFORE, MemoryStore

from onyx.errors import Fenced, Unavailable
from onyx.plugins.protocol import Token
from onyx.plugins.rolling import RollLimits
from onyx.plugins.transactions import TransactionWriter

SEGMENTS = 12
STEPS_MAX = 1_000

Fault = st.sampled_from([None, None, BEFORE, AFTER])
Event = st.sampled_from(["write", "write", "flush", "tick", "rewire", "crash", "leave", "zombie"])
EVENTS = st.lists(Event, min_size=5, max_size=30)
STORE_FAULTS = st.lists(Fault, min_size=5, max_size=30)
LOG_FAULTS = st.lists(Fault, max_size=10)


class Peer:
    """A writer, and the state log of its allocation version."""

    def __init__(self, world: World, number: int) -> None:
        self.name = f"incarnation-{number}"
        self.store = MemoryStore(world.database)
        self.store.faults = world.store_faults
        self.output = TransactionWriter(
            self.store, plugin_context({}, incarnation=self.name), RollLimits(segments=3)
        )
        self.world = world
        self.fenced = False
        self.written: list[int] = []
        self.committed = 0

    def begin(self) -> None:
        """The version before is over: what it committed is known."""
        self.output.begin(self.commit)
        self.fenced = False
        self.written, self.committed = [], 0

    def commit(self, token: Token, segments: int) -> None:
        fault = self.world.log_faults.popleft() if self.world.log_faults else None
        if self.fenced:
            raise Unavailable("fenced")
        if fault == BEFORE:
            raise Unavailable("no answer")
        if self.world.last is not token:
            self.world.last = token
            done = self.written[self.committed : self.committed + segments]
            self.world.committed.update(done)
            self.committed += segments
        if fault == AFTER:
            raise Unavailable("no answer")

    def write(self, number: int) -> None:
        self.written.append(number)
        try:
            self.output.write([{"n": number}])
        except Unavailable:
            self.written.pop()
            raise


class World:
    def __init__(self, store_faults: list[str | None], log_faults: list[str | None]) -> None:
        self.database = MemoryStore()
        self.store_faults = deque(store_faults)
        self.log_faults = deque(log_faults)
        self.last: Token | None = None
        self.committed: set[int] = set()
        self.peer = Peer(self, 0)
        self.zombies: list[Peer] = []
        self.peer.begin()

    def waiting(self) -> list[int]:
        known = self.committed | set(self.peer.written)
        return [n for n in range(SEGMENTS) if n not in known]

    def rewire(self, why: str) -> None:
        """A new allocation version, with another peer in place of one that is dead or has left."""
        self.peer.fenced = True
        if why == "leave":
            self.peer.output.close()
        if why != "rewire":
            self.zombies.append(self.peer)
            self.peer = Peer(self, len(self.zombies))
        for _ in range(STEPS_MAX):
            with suppress(Unavailable):
                if self.last is not None:
                    self.peer.output.finish(self.last)
                self.peer.begin()
                self.peer.output.fence([])
                return
        raise AssertionError("it never begins")

    def end(self) -> None:
        for _ in range(STEPS_MAX):
            with suppress(Unavailable):
                for number in self.waiting():
                    self.peer.write(number)
                self.peer.output.flush()
                self.peer.output.seal()
                return
        raise AssertionError("it never ends")


@settings(max_examples=examples(600))
@given(EVENTS, STORE_FAULTS, LOG_FAULTS)
def test_every_row_is_there_exactly_once(
    events: list[str], store_faults: list[str | None], log_faults: list[str | None]
) -> None:
    world = World(store_faults, log_faults)
    for event in events:
        with suppress(Unavailable):
            if event == "write" and world.waiting():
                world.peer.write(world.waiting()[0])
            elif event in ("flush", "tick"):
                getattr(world.peer.output, event)()
            elif event in ("rewire", "crash", "leave"):
                world.rewire(event)
            elif event == "zombie" and world.zombies:
                with suppress(Fenced):
                    world.zombies[-1].output.flush()
    world.end()
    for zombie in world.zombies:
        with suppress(Fenced, Unavailable):
            zombie.output.flush()
        zombie.output.close()
    assert Counter(row["n"] for row in world.database.rows) == Counter(range(SEGMENTS))
    assert world.database.positions == {}
