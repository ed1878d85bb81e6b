"""Keys that are numbers meet where they are equal, exactly, whatever types their columns have."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from onyx.errors import UserError
from onyx.flow.batch import as_dicts
from onyx.flow.columns.record_batch import Columns, concatenated, from_dicts
from onyx.flow.columns.values import to_array
from onyx.joins.asked import AskedTable
from onyx.joins.enrichment import Enrichment
from onyx.joins.table import Table
from onyx.keystate.selection import EVERYTHING

LARGE = [2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
FRACTIONS = [0.25, 1.5, -1.5, 2.0**63, 1e30, float("inf")]
DECIMALS = list(map(Decimal, ["0.25", "1.50", "-0.5", "0.00", "9223372036854775808"]))
SMALL = list(map(Decimal, ["0.25", "0.99", "0.00", "-0.50"]))
KINDS = [
    (LARGE, pa.uint64()),
    (FRACTIONS, pa.float64()),
    (DECIMALS, pa.decimal128(30, 2)),
    ([Decimal("-9.99"), Decimal("9.99"), Decimal("9.00")], pa.decimal128(3, 2)),
    (DECIMALS, pa.decimal256(50, 4)),
    (SMALL, pa.decimal128(2, 2)),
    (SMALL, pa.decimal64(12, 3)),
    (SMALL, pa.decimal32(5, 3)),
    ([1, 2, -3], pa.int8()),
    ([float("nan"), 1.0], pa.float64()),
]


@pytest.mark.parametrize(("keys", "kind"), KINDS)
def test_a_row_is_found_by_numbers_of_any_type(keys, kind):
    rows = [each for each in keys if each == each]
    table = Table(
        "t", Columns.of(pa.record_batch({"k": pa.array(rows, kind), "v": range(len(rows))})), ["k"]
    )
    for others, other in KINDS:
        asked = Columns.of(pa.record_batch({"id": pa.array([*others, None], other)}))
        join = Enrichment(lambda: table, ("id",))
        wanted = [rows.index(each) if each in rows else None for each in others]
        dicts = [{"id": each} for each in as_dicts(asked) for each in each.values()]
        for segments in (asked, dicts, [{"id": each} for each in [*others, None]]):
            joined, _, failures, _ = join.of(segments)
            assert not failures
            assert [each["v"] for each in as_dicts(joined)] == [*wanted, None]


def test_rows_that_come_later_may_be_larger():
    from onyx.joins.keys import KeyNumbers

    numbers = KeyNumbers(1)
    assert numbers.add([pa.array([7, 8])]).tolist() == [0, 1]
    assert numbers.add([pa.array([8, 2**63], pa.uint64())]).tolist() == [1, 2]
    assert numbers.add([pa.array([7.0, 7.5, None])]).tolist() == [0, 3, -1]
    assert numbers.find([to_array([Decimal("7.5"), Decimal(8), Decimal(2**63)])]).tolist() == [
        3,
        1,
        2,
    ]
    assert len(numbers) == 4


def test_parts_of_keys_may_be_large():
    rows: list[dict[str, Any]] = [{"a": 2**63, "b": 0.5}, {"a": 1, "b": 0.5}, {"a": 1, "b": 2.0}]
    table = Table("t", from_dicts([row | {"n": n} for n, row in enumerate(rows)])[0], ["a", "b"])
    assert table.find([to_array([1, 2**63, 2**63]), to_array([2, 0.5, 2.0])]).tolist() == [2, 0, -1]
    assert table[2**63, 0.5]["n"] == 0


def test_questions_see_large_keys():
    rows = [{"k": each, "v": 1} for each in (2**64 - 1, 5, 2**63)]
    found = AskedTable(Table("t", from_dicts(rows)[0], ["k"])).query(EVERYTHING)
    assert [each.group for each in found] == [5, 2**63, 2**64 - 1]


def test_columns_of_large_ints_stand_behind_those_of_small_ones():
    tables = [pa.table({"k": pa.array([1, None])}), pa.table({"k": pa.array([2**63], pa.uint64())})]
    assert concatenated(tables)["k"].to_pylist() == [1, None, 2**63]
    assert concatenated(tables[::-1])["k"].to_pylist() == [2**63, 1, None]
    with pytest.raises(pa.ArrowInvalid):
        concatenated([pa.table({"k": [-1]}), tables[1]])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"k": [1], "at": 1}, "table t: key k: values of type list<item: int64> cannot be keys"),
        ({"k": 1, "at": "x"}, "table t: key at: values of kind text are no times"),
    ],
)
def test_a_table_that_cannot_be_looked_up_names_the_key(row: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Table("t", from_dicts([row])[0], ["k"], "at")
