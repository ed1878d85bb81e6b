"""The hour that clocks show twice: its moments differ in `fold` alone, which Python overlooks."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.flow.comparisons import ColumnComparison, Comparison
from onyx.flow.groups.codes import KeyCodes, KeyList
from onyx.flow.groups.getters import key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.flow.groups.keys import key_hash
from onyx.joins.table import Table
from onyx.keystate.coded import GroupKeys
from onyx.keystate.uniqueness import UniqueKeys
from onyx.model.job import CatalogEntry
from onyx.program.event_times import newest_alike, time_of, times_of
from onyx.windows.aggregations.collecting import CollectByKey
from onyx.windows.aggregations.numbers import Max, Min

BERLIN = ZoneInfo("Europe/Berlin")
SUMMER, WINTER = (datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1))
"""00:30 and 01:30 in UTC."""
UTCS = [each.astimezone(UTC) for each in (SUMMER, WINTER)]
ROWS = [{"k": SUMMER}, {"k": WINTER}, {"k": SUMMER}, {"k": WINTER}]


def columns_of(rows):
    columns, kept, failures = from_dicts(rows)
    assert kept is None
    assert not failures
    return columns


def test_the_two_hours_are_two_group_keys_in_one_batch_and_over_batches():
    columns = columns_of([{**row, "n": 1} for row in ROWS])
    remembered = GroupKeys()
    for keys in (KeyCodes.of_column(columns, "k"), KeyCodes.of_parts(columns, ["k", "n"])):
        groups = remembered.of(keys)
        assert groups.codes.tolist() == [0, 1, 0, 1]
        assert len(set(groups.keys)) == 2
        assert groups.keys != remembered.of(keys.take(groups.codes[1:2])).keys
    dicts = remembered.of_list(KeyList([row["k"] for row in ROWS]))
    assert len(set(dicts)) == 2
    assert set(dicts) == set(remembered.of(KeyCodes.of_column(columns, "k")).keys)


@pytest.mark.parametrize("by", ["k", ("k", "n")])
def test_the_two_hours_have_the_hashes_that_they_have_in_dicts(by):
    entry = CatalogEntry("count", "function", 1, group_by_key=by)
    rows = [{"k": each, "n": 1} for each in (SUMMER, WINTER)]
    grouping = Grouping(key_getter(entry, {}.__getitem__), entry)
    wanted = [key_hash(each["k"] if by == "k" else each) for each in rows]
    assert len(set(wanted)) == 2
    for row, each in zip(rows, wanted, strict=True):  # one batch after the other
        assert grouping.hashes_of(columns_of([row])).tolist() == [each]
        assert grouping.hashes_of([row]).tolist() == [each]


@pytest.mark.parametrize(
    ("operator", "value", "holds"),
    [
        ("==", "2024-10-27T00:30:00Z", [True, False]),
        ("==", "2024-10-27T02:30:00+01:00", [False, True]),
        ("!=", "2024-10-27T01:30:00Z", [True, False]),
        ("in", ("2024-10-27T01:30:00Z", "x"), [False, True]),
        ("<", "2024-10-27T01:00:00Z", [True, False]),
        (">=", "2024-10-27T01:30:00Z", [False, True]),
    ],
)
def test_conditions_compare_instants(operator, value, holds):
    comparison = Comparison(operator, "k", value)
    rows = [{"k": SUMMER}, {"k": WINTER}]
    assert list(map(comparison.answer(), (SUMMER, WINTER))) == holds
    assert ColumnComparison(comparison).answers(columns_of(rows)).holds.tolist() == holds


def test_event_time_is_that_of_the_later_hour():
    later, earlier = WINTER, SUMMER + timedelta(minutes=20)
    assert time_of(newest_alike([later, earlier])) == time_of(UTCS[1])
    column = pa.array([later, earlier], pa.timestamp("us", "Europe/Berlin"))
    assert times_of(column, time_of)[0] == time_of(UTCS[1])


def test_the_least_and_the_greatest_are_those_of_instants():
    early, late = WINTER, SUMMER + timedelta(minutes=20)  # by the clock the other way round
    for aggregation, best in ((Max("", "k", UTCS[0]), UTCS[1]), (Min("", "k", UTCS[1]), None)):
        for segments in ([{"k": early}, {"k": late}], columns_of([{"k": early}, {"k": late}])):
            state = aggregation.init()
            for each in aggregation.extract(segments):
                state = aggregation.apply(state, aggregation.create(state, each))
            assert state == (best or late.astimezone(UTC))


def test_segments_are_collected_by_instant():
    aggregation = CollectByKey("", "k")
    state = aggregation.init()
    for each in ROWS:
        state = aggregation.apply(state, aggregation.create(state, each))
    assert {key: len(found) for key, found in state.items()} == dict.fromkeys(UTCS, 2)


def test_a_table_has_a_row_for_each_hour_whoever_asks():
    table = Table("t", columns_of([{"k": SUMMER, "v": 1}, {"k": WINTER, "v": 2}]), ["k"])
    assert [table[each]["v"] for each in (SUMMER, WINTER, *UTCS)] == [1, 2, 1, 2]
    assert len(list(table)) == len(table) == 2
    assert table.find([pa.array([WINTER, SUMMER])]).tolist() == [1, 0]


def test_the_two_hours_are_two_unique_keys():
    assert UniqueKeys().first_seen([SUMMER, WINTER, *UTCS]) == [True, True, False, False]


def test_columns_keep_the_hour():
    whole = Columns.of(columns_of(ROWS).record_batch)
    for rows in (columns_of(ROWS), whole):  # PyArrow's zones are not those of Python everywhere
        assert [rows.row(n)["k"].astimezone(UTC) for n in range(2)] == UTCS
