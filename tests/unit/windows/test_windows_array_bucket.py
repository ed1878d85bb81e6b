"""A bucket in arrays is a bucket: what it holds, gives and records is what a dict would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.examples import examples
from tests.support.windows.short import plain

from onyx.keystate.coded import Groups
from onyx.keystate.groups import Shards
from onyx.keystate.records import DeleteGroups, SetStates
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.numbers import Average, Count, Max, Sum
from onyx.windows.arrays import bucket as rows_module
from onyx.windows.arrays.bucket import ArrayBucket

AGGREGATIONS = [Count(), Sum("", "v"), Max("", "v", 3), Average("", "v")]
KEYS = st.integers(0, 9)


def shard_of(key):
    return key % 3


class BucketMachine(RuleBasedStateMachine):
    """`model` has the states, `log` what the records so far add up to."""

    @initialize(aggregation=st.sampled_from(AGGREGATIONS))
    def begin(self, aggregation: Aggregation) -> None:
        self.aggregation = aggregation
        form = aggregation.array_form()
        assert form is not None
        self.bucket = ArrayBucket(aggregation.form(), form, Shards(shard_of))
        self.model: dict[int, object] = {}
        self.log: dict[int, object] = {}

    @rule(batch=st.lists(st.tuples(KEYS, st.integers(-5, 5)), min_size=1))
    def fold(self, batch: list[tuple[int, int]]) -> None:
        groups = Groups.of_rows([key for key, _ in batch])
        values = np.array([value for _, value in batch])
        assert self.bucket.fold(groups, values) is not None
        for key, value in batch:
            state = self.model.get(key, self.aggregation.init())
            update = self.aggregation.create(state, value)
            self.model[key] = self.aggregation.apply(state, update)

    @rule(key=KEYS, value=st.integers(-5, 5))
    def put(self, key: int, value: int) -> None:
        state = (1, value) if isinstance(self.aggregation, Average) else value
        self.bucket[key] = state
        self.model[key] = state

    @rule(keys=st.sets(KEYS), asked=st.booleans())
    def remove(self, keys: set[int], asked: bool) -> None:
        there = keys & self.model.keys()
        if asked:
            assert sorted(self.bucket.present(keys)) == sorted(there)
        self.bucket.remove(keys)
        for key in there:
            del self.model[key]

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        if self.model.pop(key, None) is None:
            with pytest.raises(KeyError):
                del self.bucket[key]
        else:
            del self.bucket[key]

    @rule(shards=st.sets(st.integers(0, 2), max_size=1), keys=st.sets(KEYS, max_size=2))
    def forget(self, shards: set[int], keys: set[int]) -> None:
        self.bucket.forget(shards, keys)
        for held in (self.model, self.log):
            for key in [key for key in held if key % 3 in shards or key in keys]:
                del held[key]

    @rule()
    def record(self) -> None:
        records: dict[int, list[object]] = {}
        self.bucket.append_changes(records, "w", 4)  # type: ignore[arg-type]
        for shard, its in records.items():
            for each in plain(its):  # type: ignore[arg-type]
                assert {shard_of(key) for key in each.groups} == {shard}
                if isinstance(each, DeleteGroups):
                    for key in each.groups:
                        self.log.pop(key, None)
                if isinstance(each, SetStates):
                    states = map(self.aggregation.load, each.states)
                    self.log.update(zip(each.groups, states, strict=True))
        assert self.log == self.model

    @rule(removed=st.booleans())
    def go_through(self, removed: bool) -> None:
        """Whoever goes through a bucket may remove what was given, and record in between."""
        given = []
        for shard, pairs in self.bucket.parts(2):
            given += pairs
            assert {shard_of(key) for key, _ in pairs} == {shard}
            if removed:
                self.bucket.remove([key for key, _ in pairs])
                self.model = {key: self.model[key] for key in self.model.keys() - dict(pairs)}
                self.record()
        if not removed:
            assert dict(given) == self.model

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "model"):
            return
        assert len(self.bucket) == len(self.model)
        assert bool(self.bucket) == bool(self.model)
        assert dict(self.bucket.items()) == self.model
        assert sorted(self.bucket) == sorted(self.model)
        assert {key: self.bucket.get(key) for key in range(10)} == {
            key: self.model.get(key) for key in range(10)
        }
        for shard in range(3):
            mine = [key for key in self.model if shard_of(key) == shard]
            assert sorted(self.bucket.by_shard([0, 1, 2])(shard)) == sorted(mine)
            assert sorted(self.bucket.groups([shard])) == sorted(mine)
        assert self.bucket.plain() == self.model


@pytest.fixture(autouse=True)
def _compacts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_COMPACT_MIN", 1)


@pytest.mark.usefixtures("_compacts_soon")
class TestBucket(BucketMachine.TestCase):
    settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)


def test_what_arrays_cannot_do_changes_nothing():
    sums = Sum("", "v")
    form = sums.array_form()
    bucket = ArrayBucket(sums.form(), form, Shards(shard_of))
    assert bucket.fold(Groups.each([1, 2]), np.array([2**61, 1])) is not None
    assert bucket.fold(Groups.of_rows([1, 1, 1]), np.array([2**62, 2**62, 1])) is None
    assert bucket.fold(Groups.each([1, 3]), np.array([0.5, 0.5])) is None
    assert bucket.fold(Groups.each([1, 3]), ["a", 1]) is None
    assert bucket.fold(Groups.each(["one"]), np.array([1])) is None
    assert not bucket.put_all([1], ["a"])
    assert dict(bucket.items()) == {1: 2**61, 2: 1}
    with pytest.raises(TypeError, match="hold 'a'"):
        bucket[1] = "a"
