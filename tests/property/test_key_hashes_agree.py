"""A column is hashed as its keys are one by one, so a group has one shard however it comes."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from onyx.flow.groups.keys import SHARDS, TEXT_BYTES_MAX, column_hashes, key_hash, shard_of
from onyx.keystate.groups import Shards

TEXT = st.text(max_size=12) | st.text(min_size=TEXT_BYTES_MAX // 2, max_size=TEXT_BYTES_MAX + 2)
COLUMNS = st.one_of(
    st.tuples(st.lists(st.integers(-(2**63), 2**63 - 1)), st.just(pa.int64())),
    st.tuples(st.lists(st.integers(0, 2**64 - 1)), st.just(pa.uint64())),
    st.tuples(st.lists(st.integers(-128, 127)), st.just(pa.int8())),
    st.tuples(st.lists(TEXT), st.sampled_from([pa.string(), pa.large_string()])),
)


@given(COLUMNS, st.integers(0, 3))
def test_a_column_is_hashed_as_its_keys_are_one_by_one(column, skipped):
    values, kind = column
    part = pa.array(values, kind).slice(skipped)
    assert column_hashes(part).tolist() == [key_hash(each) for each in part.to_pylist()]


@given(COLUMNS)
def test_groups_of_a_column_have_the_shards_of_single_groups(column):
    values, kind = column
    shards = Shards(shard_of)
    assert shards.of_column(pa.array(values, kind)).tolist() == [shard_of(each) for each in values]
    assert set(shards.known) == {shard_of(each) for each in values}


@given(st.integers(-(2**53), 2**53))
def test_a_float_that_equals_an_int_has_its_hash(key):
    assert key_hash(float(key)) == key_hash(key)


def test_keys_that_differ_little_are_spread_over_all_shards():
    for values in (list(range(10_000)), [f"user-{n}" for n in range(10_000)]):
        found = [0] * SHARDS
        for value in column_hashes(pa.array(values)).tolist():
            found[value % SHARDS] += 1
        assert 40 <= min(found) <= max(found) <= 130


def test_other_columns_are_left_to_single_keys():
    for column in (pa.array([1.5]), pa.array([True]), pa.array([None, 1]), pa.array([b"x"])):
        assert column_hashes(column) is None
