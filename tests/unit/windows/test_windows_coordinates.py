"""The coordinate of a segment: what a window takes, and what it says about the rest."""

from datetime import UTC, date, datetime, timedelta, timezone

import pyarrow as pa
import pytest

from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.windows.assigning.coordinates import Coordinates

NOON_MS = 1_442_145_600_000
OF_TIME = Coordinates("window hourly of task count", "at", time=True)
OF_ELEMENTS = Coordinates("window hourly of task count", "at", time=False)


@pytest.mark.parametrize(
    "value",
    [
        NOON_MS,
        float(NOON_MS),
        datetime(2015, 9, 13, 12, tzinfo=UTC),
        datetime(2015, 9, 13, 14, tzinfo=timezone(timedelta(hours=2))),
        datetime(2015, 9, 13, 12),  # noqa: DTZ001
        "2015-09-13T12:00:00Z",
        "2015-09-13T14:00:00+02:00",
        "2015-09-13T12:00:00",
    ],
)
def test_an_instant_has_many_forms(value):
    assert OF_TIME.number(value) == NOON_MS


def test_a_date_is_its_midnight_in_utc():
    assert OF_TIME.number(date(2015, 9, 13)) == NOON_MS - 12 * 3_600_000


def test_a_batch_of_ints_is_known_to_be_one():
    found, ints = OF_TIME.of([{"at": 3}, {"at": 1}])
    assert (found.tolist(), ints) == ([3, 1], True)
    assert OF_TIME.of([{"at": 3}, {"at": 1.5}]) == ([3, 1.5], False)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [],
        "noon",
        float("nan"),
        float("inf"),
        1e25,
        -1e300,
        b"12",
        2**62,
        -(2**62),
        2**70,
    ],
)
def test_what_is_no_instant_is_an_error_with_all_that_it_takes_to_find_it(value):
    with pytest.raises(UserError) as caught:
        OF_TIME.of([{"at": 1}, {"at": value}])
    kind = "no value" if value is None else type(value).__name__
    for part in ("window hourly", "task count", "'at'", kind):
        assert part in str(caught.value)


@pytest.mark.parametrize("value", [2**62, -(2**62), -(2**63), 2**63, 2**64 - 1, 2.0**62])
def test_what_has_no_extent_of_64_bits_is_refused_in_columns_as_well(value):
    kind = pa.uint64() if value >= 2**63 else None
    columns = Columns(pa.record_batch({"at": pa.array([1, value], kind)}))
    for coordinates in (OF_TIME, OF_ELEMENTS):
        with pytest.raises(UserError, match=r"'at' holds .* nearer to 0 than 2\*\*62"):
            coordinates.of(columns)


@pytest.mark.parametrize(
    "value", [-1, -0.5, date(1969, 12, 31), "1969-12-31T23:59:59.999Z"], ids=str
)
def test_what_is_below_the_least_is_refused_in_both_formats(value):
    coordinates = Coordinates("window w of task gather", "at", time=True, least=0)
    for segments in ([{"at": value}], from_dicts([{"at": value}])[0]):
        with pytest.raises(UserError, match=r"'at' holds -.* below minValue 0, .* give a minValue"):
            coordinates.of(segments)


@pytest.mark.parametrize("value", ["2015-09-13", datetime(2015, 9, 13, tzinfo=UTC)])
def test_a_window_over_elements_takes_numbers_only(value):
    with pytest.raises(UserError, match="use an int or a float"):
        OF_ELEMENTS.number(value)


def test_a_segment_without_the_key_is_an_error():
    with pytest.raises(UserError, match="no key 'at', which is the windowKey"):
        OF_TIME.of([{"at": 1}, {"when": 1}])


@pytest.mark.parametrize(
    ("values", "time"),
    [
        ([3, -4], False),
        ([3.5, -4.0], False),
        (
            [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2020, 1, 1, tzinfo=UTC)],
            True,
        ),
        ([date(2020, 1, 1), date(1960, 5, 5)], True),
        (["2020-01-01", "1960-05-05T10:00:00.000999+02:00", "2020-01-01"], True),
    ],
    ids=["ints", "floats", "datetimes", "dates", "text"],
)
def test_columns_have_the_places_of_dicts(values, time):
    coordinates = Coordinates("window w of task gather", "at", time)
    found, _ = coordinates.of(from_dicts([{"at": value} for value in values])[0])
    assert found.tolist() == list(coordinates.of([{"at": value} for value in values])[0])


@pytest.mark.parametrize("value", [None, True, float("nan"), 2.0**63, "x", date(2020, 1, 1), [1]])
def test_columns_are_refused_like_dicts(value):
    coordinates = Coordinates("window w of task gather", "at", time=False)
    columns, _, _ = from_dicts([{"at": value}])
    with pytest.raises(UserError) as of_dicts:
        coordinates.of([{"at": value}])
    with pytest.raises(UserError) as of_columns:
        coordinates.of(columns)
    assert str(of_columns.value) == str(of_dicts.value)
    with pytest.raises(UserError, match="has no key 'at'"):
        coordinates.of(columns.without(["at"]))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([11, -1], [11_000, -1_000]),
        ([11.25, -0.5, 1.7e12], [11_250, -500, 1_700_000_000_000_000]),
        ([datetime(1970, 1, 1, 0, 0, 0, 11_250, tzinfo=UTC)], [11_250]),
        ([datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)], [-1]),
        ([date(1970, 1, 2)], [86_400_000_000]),
        (["1970-01-01T00:00:00.011250", "1970-01-01T01:00:00.000001+01:00"], [11_250, 1]),
    ],
)
def test_a_join_compares_instants_to_the_microsecond(values, found):
    times = Coordinates("join j", "at", time=True, word="at")
    rows = [{"at": each} for each in values]
    assert times.microseconds(rows).tolist() == found
    assert times.microseconds(from_dicts(rows)[0]).tolist() == found
    with pytest.raises(OverflowError):
        times.microseconds([{"at": 2**62}])
    with pytest.raises(OverflowError):
        times.microseconds(from_dicts([{"at": 2**62}])[0])


def test_an_order_of_instants_tells_microseconds_apart():
    first = datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    later = [first.replace(microsecond=2), "2024-01-01T00:00:00.000003", 1_704_067_200_000.004]
    assert OF_TIME.number(first) == OF_TIME.number(later[0])
    orders = list(map(OF_TIME.order, [first, *later]))
    assert orders == sorted(set(orders))
    assert OF_ELEMENTS.order(1.5) == 1.5
