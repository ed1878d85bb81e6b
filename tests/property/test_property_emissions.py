"""Emissions: sent when the log has them, kept until complete, taken over without gaps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.clocks import ManualClock
from tests.support.examples import examples

from onyx.base.runs import array_of
from onyx.flow.batch import Segments, as_dicts
from onyx.flow.columns.record_batch import Columns
from onyx.ledger.lineage import partitions_of, positions_of
from onyx.task.state.emissions import (
    CHECK_INTERVAL_S,
    EmissionRun,
    Emissions,
    Placed,
    PlacedRuns,
    SentRuns,
)

FIRST = 5
SHARDS = 3
TIMEOUT_S = 10.0
Place = tuple[int, int]
"""Shard and position."""
Emission = tuple[str | None, dict[str, int]]
"""A segment and the only child that it is for."""


def run(*numbers: int, child: str | None = None, columns: bool = False) -> EmissionRun:
    """A run of segments, a byte each."""
    dicts = [{"n": number} for number in numbers]
    segments: Segments = Columns(pa.RecordBatch.from_pylist(dicts)) if columns else dicts
    return EmissionRun(segments, child, len(numbers))


def each_of(placed: list[Placed]) -> list[tuple[int, Emission]]:
    """Every emission of some runs, with its position."""
    return [
        (first + index, (run.child, segment))
        for first, run in placed
        for index, segment in enumerate(as_dicts(run.segments))
    ]


class EmissionsMachine(RuleBasedStateMachine):
    """A model beside them: what was added, what the log has, what is complete."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.log: dict[int, list[Emission]] = {shard: [] for shard in range(SHARDS)}
        """What is durable, by shard and position."""
        self.settled = dict.fromkeys(range(SHARDS), 0)
        self.complete: set[Place] = set()
        self.ids: dict[Place, int] = {}
        self.added = 0
        self.begin()

    def begin(self) -> None:
        """A new allocation version: everything that is durable and not settled is taken over."""
        self.emissions = Emissions("count", FIRST, self.clock, TIMEOUT_S)
        self.waiting: list[PlacedRuns] = []
        self.fresh = 0
        """How many are not durable yet."""
        self.roots: dict[Place, int] = {}
        """The newest root of each one that was sent."""
        for shard, emissions in self.log.items():
            left = emissions[self.settled[shard] :]
            runs = [run(segment["n"], child=child, columns=True) for child, segment in left]
            self.emissions.restore(shard, self.settled[shard], runs)

    @rule(
        shard=st.integers(0, SHARDS - 1),
        count=st.integers(0, 4),
        late=st.booleans(),
        columns=st.booleans(),
    )
    def emit(self, shard: int, count: int, late: bool, columns: bool) -> None:
        numbers = range(self.added, self.added + count)
        self.added += count
        made = run(*numbers, child="late" if late else None, columns=columns and count > 0)
        self.emissions.add(shard, made)
        self.fresh += count

    @rule()
    def cut(self) -> None:
        self.waiting.append(self.emissions.take_fresh())

    @rule()
    def becomes_durable(self) -> None:
        if not self.waiting:
            return
        taken = self.waiting.pop(0)
        for shard, runs in taken.items():
            emissions = each_of(runs)
            assert [position for position, _ in emissions] == list(
                range(len(self.log[shard]), len(self.log[shard]) + len(emissions))
            )
            self.log[shard] += [emission for _, emission in emissions]
            self.fresh -= len(emissions)
        self.emissions.release(taken)

    @rule(most=st.integers(1, 5))
    def send(self, most: int) -> None:
        for child, batch in self.emissions.read(most):
            assert batch.roots is not None
            assert batch.ids is not None
            shards = (partitions_of(array_of(batch.roots)).astype(int) - FIRST).tolist()
            positions = positions_of(array_of(batch.roots)).tolist()
            segments = as_dicts(batch.segments)
            for index, place in enumerate(zip(shards, positions, strict=True)):
                shard, position = place
                assert self.log[shard][position] == (child, segments[index])
                found = int(batch.ids[index])
                assert self.ids.setdefault(place, found) == found, "another id than before"
                self.roots[place] = int(batch.roots[index])

    @rule(every=st.integers(1, 3))
    def trees_are_complete(self, every: int) -> None:
        done = sorted(set(self.roots) - self.complete)[::every]
        roots = np.array(sorted(self.roots[place] for place in done), dtype=np.uint64)
        self.emissions.complete(roots)
        self.complete.update(done)

    @rule()
    def some_are_wanted_again(self) -> None:
        roots = sorted(self.roots[place] for place in set(self.roots) - self.complete)
        self.emissions.force_retry(np.array(roots[:2], dtype=np.uint64), retries_max=2)

    @rule()
    def time_passes(self) -> None:
        self.clock.advance(TIMEOUT_S + CHECK_INTERVAL_S)

    @rule()
    def settled_is_stored(self) -> None:
        for shard, position in self.emissions.take_settled().items():
            assert all((shard, each) in self.complete for each in range(position))
            self.settled[shard] = position

    @rule()
    def the_peer_dies(self) -> None:
        self.complete = {(s, p) for s, p in self.complete if p < self.settled[s]}
        self.begin()

    @invariant()
    def a_snapshot_has_all_that_is_durable_and_not_settled(self) -> None:
        for shard in range(SHARDS):
            settled, pending = self.emissions.pending(shard)
            durable = list(enumerate(self.log[shard]))
            assert each_of(pending) == durable[settled:]

    @invariant()
    def the_bytes_that_are_held_are_of_what_is_behind_the_first_that_is_not_complete(self) -> None:
        behind = sum(len(each_of(self.emissions.pending(shard)[1])) for shard in range(SHARDS))
        assert self.emissions.held_bytes == behind + self.fresh

    @invariant()
    def all_that_is_durable_is_sent_in_the_end(self) -> None:
        if self.emissions.waiting:
            return
        for shard, emissions in self.log.items():
            for position in range(self.settled[shard], len(emissions)):
                assert (shard, position) in self.roots


TestEmissions = EmissionsMachine.TestCase
TestEmissions.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_nothing_is_sent_before_the_log_has_it() -> None:
    emissions = Emissions("count", FIRST, ManualClock(), TIMEOUT_S)
    emissions.add(2, run(1, 2))
    taken = emissions.take_fresh()
    assert emissions.read(10) == []
    emissions.release(taken)
    ((_, batch),) = emissions.read(10)
    assert batch.segments == [{"n": 1}, {"n": 2}]


def test_without_trees_an_emission_is_sent_once_and_forgotten() -> None:
    emissions = Emissions("count", None, ManualClock(), TIMEOUT_S)
    emissions.add(0, run(1))
    emissions.add(0, run(2, child="late"))
    assert emissions.unsettled == 2
    emissions.release(emissions.take_fresh())
    sent = [(child, batch.segments, batch.roots) for child, batch in emissions.read(10)]
    assert sent == [(None, [{"n": 1}], None), ("late", [{"n": 2}], None)]
    assert emissions.unsettled == 0
    assert emissions.pending(0) == (2, [])


def test_those_of_a_shard_that_is_late_are_missed_though_as_many_of_others_were_sent() -> None:
    emissions = Emissions("count", FIRST, ManualClock(), TIMEOUT_S)
    emissions.restore(0, 0, [])
    emissions.restore(1, 0, [run(1, 2)])
    before = emissions.added
    emissions.add(0, run(3))
    emissions.release(emissions.take_fresh())
    emissions.read(2)
    assert (emissions.sent, emissions.sent_through) == (2, 0)
    emissions.read(2)
    assert emissions.sent_through == emissions.added > before


def test_segments_of_two_formats_are_sent_apart_and_together_with_their_like() -> None:
    emissions = Emissions("count", FIRST, ManualClock(), TIMEOUT_S)
    for shard in (0, 1):
        emissions.add(shard, run(shard, columns=True))
        emissions.add(shard, run(10 + shard))
    emissions.release(emissions.take_fresh())
    sent = [batch.segments for _, batch in emissions.read(10)]
    assert [type(each) for each in sent] == [Columns, list]
    assert [as_dicts(each) for each in sent] == [[{"n": 0}, {"n": 1}], [{"n": 10}, {"n": 11}]]


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1),
    columns=st.booleans(),
    asked=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40))),
)
def test_sent_runs_are_found_by_position_until_they_are_forgotten(
    sizes: list[int], columns: bool, asked: list[tuple[int, int]]
) -> None:
    sent, first, held = SentRuns(), 7, 0
    for size in sizes:
        sent.add(first, run(*range(first, first + size), columns=columns))
        first, held = first + size, held + size
    frontier = 7
    for one, other in asked:
        begin, end = sorted((one, other))
        found = [
            (position, segment["n"])
            for position, (_, segment) in each_of(list(sent.between(begin, end)))
        ]
        there = range(max(begin, frontier), min(end, first))
        assert found == [(position, position) for position in there]
        passed = min(max(frontier, begin), first)
        assert sent.forget(passed) == passed - frontier
        held -= passed - frontier
        frontier = passed
        assert sum(each.size_bytes for _, each in sent) == held
