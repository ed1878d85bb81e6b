"""Which version of a row is valid at a time: the last one whose time is not later, exactly."""

from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan

import pyarrow as pa
import pytest

from onyx.errors import UserError
from onyx.flow.batch import as_dicts
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.values import to_array
from onyx.joins.asked import AskedTable
from onyx.joins.enrichment import Enrichment
from onyx.joins.table import Table
from onyx.keystate.selection import EVERYTHING

U64 = pa.uint64()
MOMENT = datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)


def table(times, kind=None):
    rows = pa.record_batch(
        {"k": pa.array([1] * len(times)), "at": to_array(times, kind), "n": range(len(times))}
    )
    return Table("prices", Columns(rows), ["k"], "at")


@pytest.mark.parametrize(
    ("versions", "kind", "asked", "found"),
    [
        ([10, 12], None, [9.9, 10.0, 11.25, 12.0, -inf, inf, nan], [-1, 0, 0, 1, -1, 1, -1]),
        ([10, 12], None, [Decimal("9.99"), Decimal("11.25"), Decimal("12.00")], [-1, 0, 1]),
        ([10, 12], None, [2**63, 2**64 - 1], [1, 1]),
        ([10.5, 12.25], None, [10, 11, 12, 13], [-1, 0, 0, 1]),
        ([10.5, 12.25], None, [10.25, 10.5, 12.2, 12.25], [-1, 0, 0, 1]),
        ([10.5, 12.25], None, [Decimal("10.4"), Decimal("10.50")], [-1, 0]),
        ([2.0**53], None, [2**53 - 1, 2**53, 2**53 + 1], [-1, 0, 0]),
        ([2**53 + 1], None, [2.0**53, 2.0**53 + 2], [-1, 0]),
        ([Decimal("0.5"), Decimal("1.25")], None, [0, 1, 2], [-1, 0, 1]),
        ([Decimal("0.5"), Decimal("1.25")], None, [0.5, 1.2, 1.25, inf, -inf], [0, 0, 1, 1, -1]),
        ([Decimal("0.5")], None, [Decimal("0.49"), Decimal("0.50")], [-1, 0]),
        ([7, 2**63 + 1], U64, [-1, 7, 2**62], [-1, 0, 0]),
        ([7, 2**63 + 1], U64, [2**63, 2**63 + 1], [0, 1]),
        ([date(2024, 1, 1)], None, [date(2023, 12, 31), date(2024, 1, 1)], [-1, 0]),
        ([MOMENT], None, [MOMENT.replace(microsecond=0), MOMENT], [-1, 0]),
    ],
)
def test_a_time_finds_the_last_version_that_is_not_later(versions, kind, asked, found):
    prices = table(versions, kind)
    enrichment = Enrichment(lambda: prices, ("id",), at="when")
    ids, times = pa.array([1] * len(asked)), to_array(asked)
    assert prices.find([ids], times).tolist() == found
    wanted = [None if each < 0 else each for each in found]
    dicts = [{"id": 1, "when": each} for each in asked]
    columns = Columns(pa.record_batch({"id": ids, "when": times}))
    for segments in (dicts, columns):
        assert [each["n"] for each in as_dicts(enrichment.of(segments).segments)] == wanted


def test_null_is_no_time():
    assert table([1.5]).find([pa.array([1, 1])], pa.array([None, 2.0])).tolist() == [-1, 0]
    assert table([1]).find([pa.array([1, 1])], pa.array([None, 1.5])).tolist() == [-1, 0]


def test_a_version_that_is_nan_is_refused():
    with pytest.raises(UserError, match="row 1"):
        table([1.5, nan])


def test_versions_with_a_fraction_are_shown_as_they_are():
    found = AskedTable(table([10.5, 12.25])).query(EVERYTHING)
    assert [(each.lower, each.upper < 12.25 or each.upper) for each in found] == [
        (10.5, True),
        (12.25, inf),
    ]
    found = AskedTable(table([Decimal("0.5"), Decimal(2)])).query(EVERYTHING)
    assert [each.lower for each in found] == [0.5, 2]
