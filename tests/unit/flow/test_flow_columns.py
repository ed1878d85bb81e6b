"""Segments as columns: types, nulls, what does not fit, and the way back to dicts."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.jobs.plugin_context import plugin_context

from onyx.codec.refusals import refused_rows
from onyx.errors import UserError
from onyx.flow.batch import Batch, as_columns, concatenate, joined, part_of, segment_at, take
from onyx.flow.columns.record_batch import Columns, from_dicts, join, of_table, to_dicts
from onyx.flow.columns.schemas import arrow_schema
from onyx.model.job import CatalogEntry
from onyx.plugins.parts.formats import ParquetFormat

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def schema_of(**types: str) -> pa.Schema:
    entry = CatalogEntry("t", "function", 1, batch_format="arrow", schema=types)
    return arrow_schema(entry)


def refusals(found: list[tuple[int, Exception]]) -> list[tuple[int, str]]:
    return [(index, str(error)) for index, error in found]


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([1, None], pa.int8()), [1, None]),
        (pa.array([1.5, 2.5], pa.float16()), [1.5, 2.5]),
        (pa.array(["a", None], pa.large_string()), ["a", None]),
        (pa.array(["a", "b"], pa.string_view()), ["a", "b"]),
        (pa.array([b"a"], pa.binary(1)), [b"a"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ns")), [NOON]),
        (pa.array([NOON], pa.timestamp("s", tz="Europe/Berlin")), [NOON]),
        (pa.array([date(2026, 1, 2)], pa.date64()), [date(2026, 1, 2)]),
        (pa.array([time(1, 2)], pa.time32("s")), [time(1, 2)]),
        (pa.array([timedelta(seconds=1)], pa.duration("ms")), [timedelta(seconds=1)]),
        (pa.array([Decimal("1.50")]), [Decimal("1.50")]),
        (pa.array([[1], None, []], pa.large_list(pa.int8())), [[1], None, []]),
        (pa.array([{"a": 1, "b": None}]), [{"a": 1, "b": None}]),
        (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())),
         [[{"key": "k", "value": 1}], None]),
        (pa.array([None, None]), [None, None]),
    ],
)  # fmt: skip
def test_a_column_of_any_type_becomes_values_of_a_segment(array, values):
    columns = Columns.of(pa.record_batch({"x": array}))
    assert [row["x"] for row in to_dicts(columns)] == values
    again, kept, failures = from_dicts(to_dicts(columns), columns.record_batch.schema)
    assert (to_dicts(again), kept, failures) == (to_dicts(columns), None, [])


PAIRS = pa.map_(pa.string(), pa.int8())
RUNS = (pa.array(["a", None, "b"]).dictionary_encode(), pa.array([{"k": 1}, None, {"k": 2}]))


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[("k", 1)], None, [("l", None), ("m", 2)], [], [("n", 3)]], PAIRS),
        pa.array([{"x": [("k", 1)]}, None, {"x": None}, {"x": []}], pa.struct([("x", PAIRS)])),
        pa.array(["a", None, "b", "a", None]).dictionary_encode(),
        *(pa.RunEndEncodedArray.from_arrays([2, 3, 6], each) for each in RUNS),
    ],
)
def test_a_part_of_a_batch_becomes_the_same_values_as_in_the_whole(array):
    whole = to_dicts(Columns.of(pa.record_batch({"x": array})))
    for first in range(len(array)):
        for last in range(first, len(array) + 1):
            part = pa.record_batch({"x": array}).slice(first, last - first)
            assert to_dicts(Columns.of(part)) == whole[first:last]


@pytest.mark.parametrize(
    ("values", "held"),
    [
        (["a", None, "b"], ["a", "a", None, "b"]),
        ([{"k": 1}, None, {"k": 2}], [{"k": 1}, {"k": 1}, None, {"k": 2}]),
    ],
)
def test_run_ends_become_a_value_for_each_row(values, held):
    array = pa.RunEndEncodedArray.from_arrays([2, 3, 4], pa.array(values))
    assert [row["x"] for row in to_dicts(Columns.of(pa.record_batch({"x": array})))] == held


def test_a_column_that_arrow_cannot_cast_is_named():
    runs = pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"])
    batch = pa.record_batch({"x": pa.StructArray.from_arrays([runs], ["within"])})
    with pytest.raises(UserError, match=r"column 'x' of type .*run_end.* cast it to .*string"):
        Columns.of(batch)


FAR_S, FAR_MS, FAR_DAYS = 2**58, 2**61, 2**32
"""In microseconds or in days of 32 bits without their high bits, these are 1970."""


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, FAR_S, None], pa.timestamp("s")),
        pa.array([1, FAR_MS, None], pa.timestamp("ms", "Europe/Berlin")),
        pa.array([1, FAR_DAYS * 86_400_000, None], pa.date64()),
    ],
)
def test_a_moment_that_its_usual_type_cannot_hold_is_refused_by_row(column, sign):
    near, far = column.view(pa.int64()).to_pylist()[:2]
    held = pa.array([near, far * sign, None], pa.int64()).view(column.type)
    columns = Columns.of(pa.record_batch({"at": held}))
    refused = [index for index, _ in refused_rows(columns)]
    assert refused == [1]
    assert columns.column("at").is_null().to_pylist() == [False, False, True]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([FAR_S], pa.duration("s")),
        pa.array([[FAR_S]], pa.list_(pa.timestamp("s"))),
        pa.array([{"a": FAR_S}], pa.struct({"a": pa.timestamp("s")})),
    ],
)
def test_a_time_that_cannot_be_had_in_microseconds_is_refused_with_its_column(column):
    with pytest.raises(UserError, match=r"column 'at' of type .* out of bounds"):
        Columns.of(pa.record_batch({"at": column}))


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (pa.record_batch([pa.array([1]), pa.array([2])], ["a", "a"]), "two columns are named 'a'"),
        (pa.record_batch({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}), "column 'a'"),
    ],
)
def test_what_no_segment_can_hold_is_refused(batch, said):
    with pytest.raises(UserError, match=said):
        Columns.of(batch)


def test_a_key_that_a_segment_lacks_is_null():
    columns, kept, failures = from_dicts([{"a": 1}, {"b": "x"}, {}])
    assert (kept, failures) == (None, [])
    rows = [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}]
    assert to_dicts(columns) == rows


@pytest.mark.parametrize(
    ("values", "misfits"),
    [
        ([1, "x", 2], [1]),
        ([1, 2.5], []),
        ([b"x", "y"], [1]),
        ([date(2026, 1, 1), NOON], [1]),
        ([None, "x", 1], [2]),
        ([True, 1], [1]),
        ([2.5, True], [1]),
        ([date(2026, 1, 1), 5], [1]),
        ([5, timedelta(1), NOON], [1, 2]),
        ([[1], ["x"]], [1]),
        ([{"at": date(2026, 1, 1)}, {"at": NOON}], [1]),
        ([{"at": None}, None, {"at": NOON}], []),
        ([[date(2026, 1, 1)], [NOON]], [1]),
        ([[{"n": timedelta(1)}], [{"n": 5}]], [1]),
    ],
)
def test_segments_that_differ_from_the_first_do_not_fit(values, misfits):
    columns, kept, failures = from_dicts([{"a": value} for value in values])
    assert [index for index, _ in failures] == misfits
    fitting = [value for index, value in enumerate(values) if index not in misfits]
    assert [row["a"] for row in to_dicts(columns)] == fitting
    assert (None if kept is None else len(kept)) == (len(fitting) if misfits else None)


@pytest.mark.parametrize(
    ("kind", "value", "held"),
    [
        ("int64", 2.0, 2),
        ("float64", 2, 2.0),
        ("decimal(5, 2)", 2, Decimal("2.00")),
        ("date", "2026-11-22", date(2026, 11, 22)),
        ("timestamp", "2026-11-22T12:00:00Z", NOON),
        ("list<float64>", [1, 2], [1.0, 2.0]),
        ("struct<a: int64, b: string>", {"a": 1}, {"a": 1, "b": None}),
        ("string", None, None),
    ],
)
def test_a_schema_converts_what_is_equal(kind, value, held):
    columns, _, failures = as_columns([{"x": value}], schema_of(x=kind))
    assert failures == []
    assert to_dicts(columns) == [{"x": held}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int64", 2.5),
        ("int64", "2"),
        ("int64", True),
        ("int8", 300),
        ("string", 2),
        ("binary", "x"),
        ("bool", 1),
        ("date", NOON),
        ("timestamp", 5),
        ("decimal(5, 2)", Decimal("1.234")),
        ("list<int64>", [1, 2.5]),
        ("struct<a: int64>", {"b": 1}),
    ],
)
def test_a_schema_loses_nothing_in_silence(kind, value):
    columns, kept, failures = as_columns([{"x": None}, {"x": value}], schema_of(x=kind))
    assert len(columns) == 1
    assert kept is not None
    assert kept.tolist() == [0]
    ((index, said),) = refusals(failures)
    assert (index, "key 'x' holds" in said) == (1, True)


def test_a_key_that_the_schema_lacks_does_not_fit():
    _, kept, failures = as_columns([{"x": 1}, {"y": 1}], schema_of(x="int64"))
    assert kept is not None
    assert kept.tolist() == [0]
    assert refusals(failures) == [
        (1, "key 'y' is not in the task's schema: add it, or leave it out")
    ]


def test_columns_are_cast_to_a_schema_and_lacking_ones_are_null():
    columns = Columns(pa.record_batch({"x": pa.array([1, 2], pa.int8())}))
    fitted, kept, failures = as_columns(columns, schema_of(x="int64", y="string"))
    assert (kept, failures) == (None, [])
    assert fitted.record_batch.schema.types == [pa.int64(), pa.string()]
    assert to_dicts(fitted) == [{"x": 1, "y": None}, {"x": 2, "y": None}]


def test_of_columns_that_do_not_fit_a_schema_the_rows_that_do_are_kept():
    columns = Columns(pa.record_batch({"x": pa.array([1.0, 2.5])}))
    fitted, kept, failures = as_columns(columns, schema_of(x="int64"))
    assert kept is not None
    assert (to_dicts(fitted), kept.tolist(), [each for each, _ in failures]) == (
        [{"x": 1}],
        [0],
        [1],
    )


def test_joined_columns_have_all_columns_and_the_wider_types():
    parts = [from_dicts([{"a": 1}])[0], from_dicts([{"a": 2.5, "b": "x"}])[0]]
    assert to_dicts(join(parts)) == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}]


FINE = Decimal("0.12345678901234567890")


@pytest.mark.parametrize(
    ("one", "other"), [("x", b"x"), (0.5, FINE), ([{"a": "x"}], [{"a": b"x"}])]
)
def test_pyarrow_makes_no_bytes_of_text_and_rounds_no_decimals(one, other):
    parts = [from_dicts([{"v": each}])[0] for each in (one, other)]
    for order in (parts, parts[::-1]):
        with pytest.raises(UserError, match=r"do not fit together: .*column 'v"):
            join(order)


def test_decimals_that_are_floats_are_joined_with_floats():
    parts = [from_dicts([{"v": each}])[0] for each in (Decimal("0.1"), 2.5)]
    assert to_dicts(join(parts)) == [{"v": 0.1}, {"v": 2.5}]


def test_columns_of_types_that_nothing_holds_cannot_be_joined():
    parts = [from_dicts([{"a": 1}])[0], from_dicts([{"a": "x"}])[0]]
    with pytest.raises(UserError, match="give the task a schema"):
        join(parts)


def test_batches_of_both_kinds_become_one_of_dicts():
    columns = Batch(from_dicts([{"a": 1}])[0], np.array([1], np.uint64), np.array([2], np.uint64))
    dicts = Batch([{"b": 2}], np.array([3], np.uint64), np.array([4], np.uint64))
    both = concatenate([columns, dicts])
    assert both.segments == [{"a": 1}, {"b": 2}]
    assert both.roots is not None
    assert both.roots.tolist() == [1, 3]


SEGMENTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "n": st.integers(-(2**63), 2**63 - 1),
            "x": st.floats(allow_nan=False),
            "s": st.text(st.characters(codec="utf-8"), max_size=5),
            "t": st.datetimes(timezones=st.just(UTC)),
            "l": st.lists(st.integers(0, 9), max_size=3),
        },
    ),
    min_size=1,
    max_size=8,
)


def nulled(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = list(dict.fromkeys(key for segment in segments for key in segment))
    return [{key: segment.get(key) for key in keys} for segment in segments]


@given(SEGMENTS, st.data())
def test_rows_are_the_segments_whatever_is_done_with_both(segments, data):
    columns, kept, failures = from_dicts(segments)
    rows = nulled(segments)
    assert (to_dicts(columns), kept, failures) == (rows, None, [])
    chosen = np.array(data.draw(st.lists(st.sampled_from(range(len(rows))))), dtype=np.intp)
    picked = take(columns, chosen)
    assert isinstance(picked, Columns)
    assert to_dicts(picked) == take(rows, chosen)
    first = data.draw(st.integers(0, len(rows)))
    halves = [part_of(columns, 0, first), part_of(columns, first, len(rows) + 1)]
    whole = joined(halves)
    assert isinstance(whole, Columns)
    assert to_dicts(whole) == rows
    index = data.draw(st.integers(0, len(rows) - 1))
    assert segment_at(columns, index) == rows[index]


def test_more_text_than_one_batch_holds_is_refused():
    class Large:
        """As a table with 3 GiB of text is, of which Arrow makes two batches."""

        num_rows = 2

        def combine_chunks(self):
            return pa.table({"text": pa.chunked_array([["a"], ["b"]])})

    with pytest.raises(UserError, match="2 rows have more than 2 GiB of text"):
        of_table(Large())


class Unhashable(pa.ExtensionType):
    """As users write them: one with `__eq__` and without `__hash__`."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.unhashable")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    def __eq__(self, other: object) -> bool:
        return type(other) is Unhashable

    __hash__ = None


def test_a_users_extension_type_is_its_storage() -> None:
    column = pa.ExtensionArray.from_storage(Unhashable(), pa.array([1, 2]))
    columns = Columns.of(pa.record_batch([column], names=["k"]))
    assert to_dicts(columns) == [{"k": 1}, {"k": 2}]


@pytest.mark.parametrize("nested", [False, True])
def test_a_time_zone_that_nobody_knows_is_refused_with_its_column(nested: bool) -> None:
    kind = pa.timestamp("us", tz="Mars/Phobos")
    column = pa.array([[0]], pa.list_(kind)) if nested else pa.array([0], kind)
    with pytest.raises(UserError, match=r"column 'at': .*'Mars/Phobos', which is not known here"):
        Columns.of(pa.record_batch([column], names=["at"]))


@pytest.mark.parametrize("name", ["UTC", "Europe/Zurich", "+01:00", "America/Argentina/Ushuaia"])
def test_known_time_zones_are_kept(name: str) -> None:
    column = pa.array([0], pa.timestamp("us", tz=name))
    assert Columns.of(pa.record_batch([column], names=["at"])).column("at").type.tz == name


@pytest.mark.parametrize("name", ["+00:00", "Etc/UTC", "Zulu", "Z", None])
def test_utc_has_one_name(name: str | None) -> None:
    column = pa.array([0], pa.timestamp("us", tz=name))
    assert Columns.of(pa.record_batch([column], names=["at"])).column("at").type.tz == "UTC"


ZONES = ["Europe/Berlin", "+01:00", "UTC"]


@pytest.mark.parametrize("nest", [lambda at: at, lambda at: {"a": [at]}], ids=["plain", "nested"])
def test_times_of_several_zones_are_one_column_of_the_same_moments(nest: Any) -> None:
    moments = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in range(3)]
    parts = []
    for zone, at in zip(ZONES, moments, strict=True):
        there = pa.array([at], pa.timestamp("us", tz=zone))
        if nest(at) is not at:
            there = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], there)], ["a"])
        parts.append(Columns.of(pa.record_batch([there], names=["at"])))
    assert to_dicts(join(parts)) == [{"at": nest(at)} for at in moments]
    file = io.BytesIO()
    body = ParquetFormat(plugin_context({})).begin(file)
    for each in parts:
        body.add_columns(each)
    body.finish()
    found = pq.read_table(file).to_pylist()
    assert found == [{"at": nest(at)} for at in moments]
