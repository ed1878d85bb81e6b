"""Values become columns of a type exactly, or are refused: the same of dicts and of columns."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from math import inf, nan

import msgspec
import pyarrow as pa
import pytest

from onyx.codec.kinds import reason
from onyx.flow.batch import pieces_of
from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.flow.columns.schemas import fitted
from onyx.flow.columns.values import MISMATCH, cast_values, to_array
from onyx.plugins.files.csv_format import converted_of
from onyx.plugins.json_columns import JsonColumns

MONEY = pa.decimal128(10, 2)
UTC_US, DAY = pa.timestamp("us", "UTC"), pa.date32()
NOON = datetime(2013, 1, 5, 12, tzinfo=UTC)
WEST = timezone(timedelta(hours=-5))
LATE = datetime(9999, 12, 31, 23, 59, 59, tzinfo=WEST)
F32, U64, I64 = pa.float32(), pa.uint64(), pa.int64()

EXACT = [
    ([2**63, 2**64 - 1, 0, None], U64, None),
    ([1.5, 0.1, 1e7, None], MONEY, [*map(Decimal, ("1.50", "0.10", "1e7")), None]),
    ([0.1], pa.decimal128(30, 25), [Decimal("0.1")]),
    ([5, None], pa.decimal128(3, 1), [Decimal("5.0"), None]),
    ([2**63], pa.decimal128(20, 0), [Decimal(2**63)]),
    ([1.5, inf, -inf], F32, None),
    (["2013-01-05T12:00:00", "2013-01-05T12:00:00Z", None], UTC_US, [NOON, NOON, None]),
    (["2013-01-05 12:00:00", "2013-01-05 14:00:00+02:00"], UTC_US, [NOON, NOON]),
    (["2013-01-05"], UTC_US, [NOON.replace(hour=0)]),
    (["2013-01-05T12:00:00.000001"], UTC_US, [NOON.replace(microsecond=1)]),
    (["2013-01-05"], DAY, [date(2013, 1, 5)]),
]  # fmt: skip
REFUSED = [
    ([1e300], F32),
    ([-1e39], F32),
    ([1.555], MONEY),
    ([nan], MONEY),
    ([inf], MONEY),
    ([1e300], MONEY),
    ([555], pa.decimal128(3, 1)),
    ([2**63], I64),
    ([2**63 + 1], pa.float64()),
    (["9999-12-31T23:59:59-05:00"], UTC_US),
    (["0001-01-01T00:00:00+05:00"], UTC_US),
    (["2013-13-05T00:00:00"], UTC_US),
    (["noon"], UTC_US),
    (["2013-01-05T12:00:00.1234567"], UTC_US),
]


def nested(values, kind):
    """The same within a list of structs."""
    return [[{"a": each}] for each in values], pa.list_(pa.struct([("a", kind)]))


@pytest.mark.parametrize(("values", "kind", "found"), EXACT)
def test_a_type_holds_what_is_equal_in_dicts_and_columns_and_within_others(values, kind, found):
    found = values if found is None else found
    deep, deep_kind = nested(values, kind)
    for given, wanted, its in ((values, found, kind), (deep, nested(found, kind)[0], deep_kind)):
        assert to_array(given, its).to_pylist() == wanted
        column = to_array(given)
        assert cast_values(column, its).to_pylist() == wanted
        assert cast_values(column.slice(1), its).to_pylist() == wanted[1:]
        columns, kept, failures = from_dicts(
            [{"k": each} for each in given], pa.schema([("k", its)])
        )
        assert (kept, failures) == (None, [])
        assert [row["k"] for row in to_dicts(columns)] == wanted


@pytest.mark.parametrize(("values", "kind"), REFUSED)
def test_what_a_type_does_not_hold_is_refused_and_nothing_beside_it(values, kind):
    good = {MONEY: 1.5, F32: 1.5, UTC_US: "2013-01-05", I64: 7}.get(kind, 7)
    for given, its in ((values, kind), nested(values, kind)):
        with pytest.raises(MISMATCH):
            to_array(given, its)
        with pytest.raises(MISMATCH):
            cast_values(to_array(given), its)
        assert (
            fitted(Columns.of(pa.record_batch({"k": to_array(given)})), pa.schema([("k", its)]))
            is None
        )
        fine = good if its is kind else [{"a": good}]
        _, kept, failures = from_dicts([{"k": fine}, {"k": given[0]}], pa.schema([("k", its)]))
        assert kept.tolist() == [0]
        assert [index for index, _ in failures] == [1]


@pytest.mark.parametrize(
    "value", [Decimal("Infinity"), Decimal("NaN"), [Decimal("-Infinity")], {"a": Decimal("sNaN")}]
)
@pytest.mark.parametrize("schema", [None, pa.schema([("k", MONEY)])])
def test_a_decimal_that_is_not_finite_fails_alone(value, schema):
    _, kept, failures = from_dicts([{"k": Decimal("1.5")}, {"k": value}, {"k": None}], schema)
    assert kept.tolist() == [0, 2]
    assert [index for index, _ in failures] == [1]


def test_ints_below_0_and_from_2_63_on_have_no_column_together():
    with pytest.raises(MISMATCH):
        to_array([-1, 2**63])
    assert to_array([[1], None, [2**63, None]]).to_pylist() == [[1], None, [2**63, None]]
    assert to_array([{"a": 2**63}, None, {"b": 1}]).to_pylist() == [
        {"a": 2**63, "b": None}, None, {"a": None, "b": 1},
    ]  # fmt: skip


def test_a_moment_beyond_the_years_of_python_in_utc_is_no_value_of_a_segment():
    with pytest.raises(MISMATCH):
        to_array([LATE])
    assert "outside of the years" in reason(LATE)
    assert not reason(LATE.replace(hour=18))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"d": 1.5, "u": 9223372036854775808, "f": 1.5, "t": "2013-01-05T12:00:00"}', True),
        (b'{"d": "inf", "u": 1, "f": 1, "t": "2013-01-05T12:00:00Z"}', False),
        (b'{"d": 1.555, "u": 1, "f": 1, "t": "2013-01-05T12:00:00Z"}', False),
        (b'{"d": 1.5, "u": 1, "f": 1e300, "t": "2013-01-05T12:00:00Z"}', False),
        (b'{"d": 1.5, "u": 1, "f": 1, "t": "9999-12-31T23:59:59-05:00"}', False),
    ],
)
def test_lines_of_json_fit_a_schema_in_columns_as_they_do_in_dicts(line, found):
    schema = pa.schema([("d", MONEY), ("u", U64), ("f", F32), ("t", UTC_US)])
    good = b'{"d": 2.25, "u": 1, "f": 1, "t": "2013-01-05"}'
    values = [good, line]
    read = JsonColumns(schema).of_some(
        values, lambda index: (msgspec.json.decode(values[index]), True)
    )
    pieces = [segments for _, segments in pieces_of(read)]
    assert sum(len(each) for each in pieces if isinstance(each, Columns)) == 1 + found
    _, kept, _ = from_dicts(list(map(msgspec.json.decode, values)), schema)
    assert (kept is None) == found


@pytest.mark.parametrize(
    ("cells", "kind", "wrong"),
    [
        (["1e300", "1.5", "inf", ""], F32, [0]),
        (["1e400", "1.5", "-Infinity", "nan"], pa.float64(), [0]),
        (["9223372036854775808", "-1"], U64, [1]),
        (["1.555", "inf", "1.5", "NaN"], MONEY, [0, 1, 3]),
        (["2013-01-05T12:00:00", "9999-12-31T23:59:59-05:00", "2013-01-05 12:00:00Z"], UTC_US, [1]),
    ],
)
def test_cells_of_csv_fit_a_schema_or_are_refused(cells, kind, wrong):
    column, misfits = converted_of(pa.array(cells), kind)
    assert misfits == wrong
    assert column.null_count == len(wrong) + cells.count("")
    assert column.type == kind


def test_nanoseconds_are_cut_down_to_the_microsecond_before_on_both_sides_of_1970():
    given, found = [-1, -1_000, -1_001, 0, 1, 1_999, None], [-1, -1, -2, 0, 0, 1, None]
    for make, wanted in (
        (pa.timestamp("ns", "UTC"), UTC_US),
        (pa.duration("ns"), pa.duration("us")),
    ):
        column = pa.array(given, pa.int64()).view(make)
        cut = Columns.of(pa.record_batch({"k": column})).column("k")
        assert cut.type == wanted
        assert cut.cast(pa.int64()).to_pylist() == found
