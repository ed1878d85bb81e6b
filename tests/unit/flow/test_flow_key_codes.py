"""Group keys of columns: one code a row, each key once, and the same groups as of dicts."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.errors import UserError
from onyx.flow.batch import COLUMNS
from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.flow.groups import codes
from onyx.flow.groups.codes import KeyCodes, Remembered, compact
from onyx.flow.groups.getters import key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.flow.groups.keys import key_hash
from onyx.flow.segment import Refusal
from onyx.model.job import CatalogEntry

TEXT = st.sampled_from(["a", "b", "", "é"])
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
VALUES = {
    "text": TEXT,
    "ints": st.integers(-3, 3),
    "floats": st.sampled_from([0.0, -0.0, 1.0, 0.5, float("inf")]),
    "bools": st.booleans(),
    "bytes": st.binary(max_size=1),
    "decimals": st.sampled_from([Decimal("1.00"), Decimal("0.50")]),
    "moments": MOMENTS,
    "dates": st.dates(),
    "times": st.just(time(1, 2)),
    "durations": st.timedeltas(timedelta(-1), timedelta(1)),
    "lists": st.lists(st.sampled_from([1, 2]), max_size=2),
    "structs": st.fixed_dictionaries({"a": st.none() | TEXT, "b": st.lists(TEXT, max_size=1)}),
}


def columns_of(segments, schema=None):
    columns, kept, failures = from_dicts(segments, schema)
    assert kept is None
    assert not failures
    return columns


def grouping(by, functions=None, **given):
    entry = CatalogEntry("count", "function", 1, **{"group_by_key": by, **given})
    return Grouping(key_getter(entry, (functions or {}).__getitem__), entry)


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
@settings(max_examples=examples(20), deadline=None)
def test_keys_of_columns_have_the_hashes_of_dicts(kind, data):
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=20))
    columns = columns_of([{"k": value, "n": n % 2} for n, value in enumerate(values)])
    for by in ("k", ("k", "n")):
        group = grouping(by)
        for part in (columns, columns.slice(1, len(columns))):
            expected = group.hashes_of(to_dicts(part))
            assert group.hashes_of(part).tolist() == expected.tolist()
            group.check(part)


@given(rows=st.lists(st.tuples(TEXT, st.integers(0, 2)), min_size=1, max_size=30))
def test_each_key_is_there_once_in_order_of_its_first_row(rows):
    columns = columns_of([{"a": a, "b": b} for a, b in rows])
    keys = KeyCodes.of_parts(columns, ["a", "b"])
    assert keys.raws == list(dict.fromkeys(rows))
    assert [keys.raws[code] for code in keys.codes.tolist()] == rows
    assert keys.values() == [{"a": a, "b": b} for a, b in keys.raws]
    ones = KeyCodes.of_column(columns, "a")
    assert ones.raws == list(dict.fromkeys(a for a, _ in rows))


@given(codes=st.lists(st.integers(0, 50), max_size=30), spread=st.sampled_from([1, 1_000]))
def test_codes_are_compacted_in_order_of_their_first_row(codes, spread):
    wide = np.array(codes, np.intp) * spread
    news, olds, firsts = compact(wide, 50 * spread + 1)
    assert olds.tolist() == list(dict.fromkeys(wide.tolist()))
    assert olds[news].tolist() == wide.tolist()
    assert wide[firsts].tolist() == olds.tolist()


def test_a_moment_is_one_group_in_every_zone():
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    there = noon.astimezone(timezone(timedelta(hours=2)))
    assert grouping("k").hashes_of(columns_of([{"k": there}])).tolist() == [key_hash(noon)]
    day = columns_of([{"k": date(2020, 1, 1)}])
    assert grouping("k").hashes_of(day).tolist() == [key_hash(date(2020, 1, 1))]


def test_columns_of_other_types_find_nothing_of_one_another():
    group = grouping("k")
    for value in (1, True, 1.0, "1", 1, True):
        assert group.hashes_of(columns_of([{"k": value}])).tolist() == [key_hash(value)]


def test_nan_is_refused_alone():
    segments = [{"k": 1.0}, {"k": float("nan")}, {"k": 0.5}]
    [(index, error)] = COLUMNS.bad(columns_of(segments), grouping("k").check)
    assert index == 1
    assert "groupByKey k of task count: a group key is NaN" in str(error)


def test_of_a_missing_column_every_row_is_refused_or_grouped():
    columns = columns_of([{"a": 1, "b": 2}, {"a": 3, "b": None}])
    with pytest.raises(Refusal, match="no key 'x', which is the groupByKey"):
        grouping("x").hashes_of(columns)
    assert [index for index, _ in COLUMNS.bad(columns, grouping(("a", "x")).check)] == [0, 1]
    optional = {"on_missing_key": "group"}
    assert grouping("x", **optional).hashes_of(columns).tolist() == [key_hash(None)] * 2
    parts = [key_hash({"b": 2}), key_hash({"b": None})]
    assert grouping(("x", "b"), **optional).hashes_of(columns).tolist() == parts
    assert grouping(("x", "y"), **optional).hashes_of(columns).tolist() == [key_hash({})] * 2


def test_a_function_gets_dicts():
    columns = columns_of([{"name": "JFK"}, {"name": "LGA"}])
    group = grouping(None, {"m:f": lambda segment: segment["name"][0]}, group_by_fn="m:f")
    assert group.hashes_of(columns).tolist() == [key_hash("J"), key_hash("L")]


def test_what_is_made_of_a_key_is_remembered_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(codes, "KEYS_MAX", 3)
    monkeypatch.setattr(codes, "KINDS_MAX", 2)
    asked = []
    remembered = Remembered(lambda value: asked.append(value) or str(value))
    one, four = ({"k": pa.array(list(range(n)))} for n in (1, 4))
    for kind in (one, one, four, one):
        keys = KeyCodes.of_column(Columns(pa.RecordBatch.from_pydict(kind)), "k")
        assert remembered.of(keys) == [str(value) for value in keys.raws]
    assert asked == [0, 1, 2, 3, 0]
    for other in (pa.int8(), pa.int16(), pa.int32()):
        remembered.of(KeyCodes.of_values([1]))
        column = pa.array([7], other)
        remembered.of(KeyCodes.of_column(Columns(pa.RecordBatch.from_arrays([column], ["k"])), "k"))
    assert asked[-6:] == [1, 7] * 3


def test_a_failing_row_is_found_among_many():
    def check(columns):
        for segment in to_dicts(columns):
            if segment["n"] in (0, 7, 99):
                raise UserError(str(segment["n"]))

    columns = columns_of([{"n": n} for n in range(100)])
    found = COLUMNS.bad(columns, check)
    assert [(index, str(error)) for index, error in found] == [(0, "0"), (7, "7"), (99, "99")]
