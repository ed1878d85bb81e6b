"""Inputs that wait for each other in event time, in whatever order their peers are stepped: what is
read is never ahead by more than the drift and a batch, the least is never held, and all comes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.feeds import Fed, Feed

from onyx.flow.batch import Segment
from onyx.plugins.bases import IndexedReader
from onyx.plugins.protocol import Cursor, Reader
from onyx.task import machine

SECOND = 1_000
BATCH = 3


class Told(Feed):
    """A feed that knows how far it was read, and asks before it is read further."""

    def __init__(self, world: World, partitions: dict[str, list[int]]) -> None:
        super().__init__(list(partitions))
        for name, times in partitions.items():
            self.give(name, *times)
        self.read_to = dict.fromkeys(partitions, 0)
        self._world = world

    def time(self, partition: str) -> int | None:
        """The greatest that was read; None: nothing was."""
        read = self.given[partition][: self.read_to[partition]]
        return max((each["t"] for each in read), default=None)

    def goes_on(self, partition: str) -> bool:
        ended = partition in self.closed and self.read_to[partition] == len(self.given[partition])
        return not ended

    def open(self, partition: str, cursor: Cursor) -> Reader:
        inner = super().open(partition, cursor)
        assert isinstance(inner, IndexedReader)
        given = self.given[partition]

        def fetch(first: int, segments_max: int) -> list[Segment]:
            found = [dict(each) for each in given[first : first + segments_max]]
            if first + len(found) > self.read_to[partition]:
                self._world.check(self.time(partition))
                self.read_to[partition] = first + len(found)
            return found

        return IndexedReader(
            cursor.position, fetch, lambda: len(given) if partition in self.closed else None
        )


class World(Fed):
    def __init__(
        self,
        inputs: Sequence[Sequence[list[int]]],
        drift_s: int,
        peers: Sequence[int],
        form: str,
        **read: Any,
    ) -> None:
        self.drift_ms = drift_s * SECOND
        self.told = {
            f"in{number}": Told(self, {f"p{number}-{n}": times for n, times in enumerate(its)})
            for number, its in enumerate(inputs)
        }
        catalog = [
            {"name": name, "type": "input", "plugin": "sequence", "batchSize": BATCH}
            | {"watermarkKey": "t", "batchFormat": form, **read}
            for name in self.told
        ]
        spec = {
            "maxDrift": f"{drift_s}s",
            "workflow": [[name, "write"] for name in self.told],
            "catalog": [*catalog, {"name": "write", "type": "output", "plugin": "blackhole"}],
        }
        counts = dict(zip(self.told, peers, strict=False))
        super().__init__(spec, dict(self.told), peers=counts)

    def check(self, time_ms: int | None) -> None:
        """A partition that has come to this time is read on."""
        others = [
            feed.time(name)
            for feed in self.told.values()
            for name in feed.given
            if feed.goes_on(name)
        ]
        if time_ms is None:
            return
        known = [each for each in others if each is not None]
        assert len(known) == len(others), "one that has said nothing yet may be the least"
        assert time_ms <= min(known) + self.drift_ms

    def rounds(self, drawn: Random, count: int) -> None:
        """Peers are stepped in any order, some more often than others."""
        for _ in range(count):
            task = drawn.choice(list(self.tasks.values()))
            for _ in range(drawn.randint(1, 12)):
                machine.step(task)
            self.acker.advance()
            self.clock.advance(0.002)

    def all_read(self) -> bool:
        return all(
            feed.read_to[name] == len(its)
            for feed in self.told.values()
            for name, its in feed.given.items()
        )


TIMES = st.lists(st.integers(0, 30 * SECOND), max_size=40).map(
    lambda steps: list(accumulate(steps))
)
INPUTS = st.lists(st.lists(TIMES, min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=examples(60))
@given(
    INPUTS,
    st.integers(1, 60),
    st.lists(st.integers(1, 2), min_size=3, max_size=3),
    st.sampled_from(["dicts", "arrow"]),
    st.integers(0, 200),
    st.randoms(use_true_random=False),
)
def test_nobody_runs_ahead_and_all_comes(
    inputs: list[list[list[int]]],
    drift_s: int,
    peers: list[int],
    form: str,
    moment: int,
    drawn: Random,
) -> None:
    world = World(inputs, drift_s, peers, form)
    for feed in world.told.values():
        feed.end()
    world.start()
    world.rounds(drawn, moment)
    if drawn.random() < 0.5:
        world.rewire(in0=drawn.randint(1, 2))
    else:
        world.crash(drawn.choice([each for name, each in world.tasks.items() if "in" in name]))
    world.start()
    world.rounds(drawn, moment)
    world.settle()
    assert world.all_read(), "the least is never held"
    assert world.completed


@settings(max_examples=examples(30))
@given(INPUTS, st.integers(1, 60), st.randoms(use_true_random=False))
def test_inputs_without_an_end_are_all_read_where_quiet_ones_become_idle(
    inputs: list[list[list[int]]], drift_s: int, drawn: Random
) -> None:
    world = World(inputs, drift_s, (1, 2, 1), "dicts", idleTimeout=500)
    world.check = lambda time_ms: None  # type: ignore[method-assign]
    world.start()
    world.rounds(drawn, 50)
    for _ in range(200):
        if world.all_read():
            return
        world.clock.advance(0.6)
        world.rounds(drawn, 5)
        world.settle()
    raise AssertionError("somebody waits for ever")
