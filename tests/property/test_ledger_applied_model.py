"""Applied ids against a plain set, whatever comes in whatever order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.examples import examples

from onyx.base.runs import Numbers, Run
from onyx.flow.batch import Batch
from onyx.ledger.applied import Applied, repeats_of
from onyx.ledger.lineage import U64, pack_roots, run_of_ids, run_of_roots
from onyx.task.state.chunks import NO_COLUMNS
from onyx.task.state.task_state import AppliedIds

SEGMENTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 30), st.sampled_from([1, 2, 257, 258, 2**63])),
    max_size=12,
)
"""Partition, position, id."""
SOURCE = 1_000
"""What the ids of runs are made of."""
Segment = tuple[int, int, int]


def columns(segments: list[Segment], attempt: int) -> tuple[U64, U64]:
    parts = [pack_roots(p, attempt, np.array([at], dtype=np.uint64)) for p, at, _ in segments]
    ids = np.array([each[2] for each in segments], dtype=np.uint64)
    return np.concatenate([np.empty(0, dtype=np.uint64), *parts]), ids


def known(applied: Applied, roots: Numbers, ids: Numbers) -> list[bool]:
    found = applied.known(roots, ids)
    return [False] * len(roots) if found is None else found.tolist()


class Model(RuleBasedStateMachine):
    """Retries must be recognised exactly; first attempts too, where an older version may have been
    or a retry overtook them."""

    def __init__(self) -> None:
        super().__init__()
        self.applied = Applied()
        self.model: set[Segment] = set()
        self.limits: dict[int, int] = {}
        self.frontiers: dict[int, int] = {}

    @rule(segments=SEGMENTS, attempt=st.integers(0, 255))
    def add(self, segments: list[Segment], attempt: int) -> None:
        live = [each for each in segments if each[1] >= self.frontiers.get(each[0], 0)]
        self.applied.add(*columns(live, attempt))
        self.model.update(live)
        if attempt:
            for partition, position, _ in live:
                self.limits[partition] = max(position, self.limits.get(partition, -1))

    @rule(partition=st.integers(0, 3), first=st.integers(0, 30), count=st.integers(1, 12))
    def add_a_run(self, partition: int, first: int, count: int) -> None:
        start = max(first, self.frontiers.get(partition, 0))
        if start < first + count:
            run = run_of_roots(partition, start, first + count)
            self.applied.add(run, run_of_ids(SOURCE, start, first + count))
            self.model.update(
                (partition, at, SOURCE + 1 + at) for at in range(start, first + count)
            )

    @rule(
        partition=st.integers(0, 3),
        first=st.integers(0, 30),
        count=st.integers(1, 12),
        attempt=st.integers(0, 2),
    )
    def look_up_a_run(self, partition: int, first: int, count: int, attempt: int) -> None:
        end = first + count
        roots = Run((partition << 48) + (attempt << 40) + first, count)
        ids = run_of_ids(SOURCE, first, end)
        found = known(self.applied, roots, ids)
        assert found == known(self.applied, roots.array(), ids.array())
        if attempt:
            wanted = [(partition, at, SOURCE + 1 + at) in self.model for at in range(first, end)]
            assert found == wanted

    @rule(segments=SEGMENTS, attempt=st.integers(1, 255))
    def look_up_retries(self, segments: list[Segment], attempt: int) -> None:
        found = known(self.applied, *columns(segments, attempt))
        before = [segments[:index] for index in range(len(segments))]
        assert found == [
            each in self.model or each in earlier
            for each, earlier in zip(segments, before, strict=True)
        ]

    @rule(segments=SEGMENTS)
    def look_up_first_attempts(self, segments: list[Segment]) -> None:
        found = known(self.applied, *columns(segments, 0))
        for segment, is_known in zip(segments, found, strict=True):
            partition, position, _ = segment
            if position < self.frontiers.get(partition, 0):
                assert not is_known
            elif position <= self.limits.get(partition, -1):
                assert is_known == (segment in self.model)
            else:
                assert not is_known

    @rule(frontiers=st.dictionaries(st.integers(0, 5), st.integers(0, 30), max_size=3))
    def forget(self, frontiers: dict[int, int]) -> None:
        for partition, position in frontiers.items():
            self.frontiers[partition] = max(position, self.frontiers.get(partition, 0))
        self.applied.forget({partition: self.frontiers[partition] for partition in frontiers})
        self.model = {e for e in self.model if e[1] >= self.frontiers.get(e[0], 0)}

    @rule()
    def rewire(self) -> None:
        self.applied.rewired()
        self.limits = {}
        for partition, position, _ in self.model:
            self.limits[partition] = max(position, self.limits.get(partition, -1))

    @rule()
    def restart(self) -> None:
        self.applied = Applied(*self.applied.columns())
        self.rewire()

    @invariant()
    def keeps_nothing_else(self) -> None:
        roots, ids = self.applied.columns()
        found = {
            (int(r) >> 48, int(r) & (2**40 - 1), int(i)) for r, i in zip(roots, ids, strict=True)
        }
        assert found == self.model


TestAppliedIds = Model.TestCase
TestAppliedIds.settings = settings(max_examples=examples(60))


MIXED = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 3), st.sampled_from([7, 8])), max_size=12
)
"""Position, attempt, id: segments are in a batch with other attempts of themselves."""


@given(st.lists(st.tuples(MIXED, st.sets(st.integers(0, 11))), max_size=6))
@settings(max_examples=examples(200))
def test_what_is_withdrawn_is_applied_when_another_attempt_brings_it(
    batches: list[tuple[list[Segment], set[int]]],
) -> None:
    its, applied = AppliedIds(NO_COLUMNS, NO_COLUMNS), set[tuple[int, int]]()
    for mixed, drawn in batches:
        parts = [columns([(0, at, id)], attempt) for at, attempt, id in mixed]
        roots, ids = (np.concatenate(each) for each in zip(columns([], 1), *parts, strict=True))
        withdrawn = sorted(index for index in drawn if index < len(mixed))
        wanted = []
        for index, (at, _, id) in enumerate(mixed):
            wanted.append(index not in withdrawn and (at, id) not in applied)
            if wanted[-1]:
                applied.add((at, id))
        news = its.fresh(Batch([{}] * len(mixed), roots, ids), withdrawn)
        assert (wanted if news is None else news.tolist()) == wanted
        assert news is not None or all(wanted)


@given(MIXED, st.sets(st.integers(0, 11)))
@settings(max_examples=examples(200))
def test_what_is_the_same_shares_the_fate_of_some(mixed: list[Segment], drawn: set[int]) -> None:
    parts = [columns([(0, at, id)], attempt) for at, attempt, id in mixed]
    roots, ids = (np.concatenate(each) for each in zip(columns([], 1), *parts, strict=True))
    chosen = sorted(index for index in drawn if index < len(mixed))
    named = [(at, id) for at, _, id in mixed]
    found = repeats_of(roots, ids, np.array(chosen, np.intp))
    assert all(named[index] == named[first] for index, first in found.items())
    assert set(found.values()) <= set(chosen)
    assert sorted(found) == [
        index
        for index, name in enumerate(named)
        if index not in chosen and name in [named[each] for each in chosen]
    ]
