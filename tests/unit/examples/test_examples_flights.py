"""The functions of the flights job."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onyx.flow.conditions import compile_conditions
from onyx.model.parsing.job import parse_manifest

FOLDER = Path(__file__).parents[3] / "examples" / "flights"
RECORD = {
    "row": "1",
    "year": "2013",
    "month": "1",
    "day": "1",
    "hour": "5",
    "minute": "15",
    "dep_time": "517",
    "sched_dep_time": "515",
    "dep_delay": "2",
    "arr_time": "830",
    "sched_arr_time": "819",
    "arr_delay": "11",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "air_time": "227",
    "distance": "1400",
    "time_hour": "2013-01-01T10:00:00Z",
}


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("flights.tasks")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("flights.windows")


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("prepare")


def goes_to(tasks: ModuleType, flight: dict[str, Any]) -> frozenset[str]:
    """The children of derive that the job sends a flight to."""
    job = parse_manifest((FOLDER / "job.yaml").read_bytes())
    conditions = compile_conditions(
        job, "derive", lambda name: vars(tasks)[name.rpartition(":")[2]]
    )
    assert conditions is not None
    return conditions.route({}, {}, flight, [flight]).flow


def test_a_record_becomes_a_flight_with_types(tasks: ModuleType) -> None:
    flight = tasks.derive(tasks.parse(RECORD))
    assert (flight["row"], flight["carrier"], flight["distance"]) == (1, "UA", 1400)
    assert (flight["delay"], flight["speed"]) == (11, 370.0)
    assert flight.keys() == {*RECORD, "delay", "speed"}


def test_a_cancelled_flight_has_neither_delay_nor_speed(tasks: ModuleType) -> None:
    gone = dict.fromkeys(("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"), "NA")
    flight = tasks.derive(tasks.parse({**RECORD, **gone}))
    assert (flight["delay"], flight["speed"]) == (None, None)
    assert goes_to(tasks, flight) == {"cancelled"}


def test_a_flight_that_never_arrived_is_as_late_as_it_left(tasks: ModuleType) -> None:
    flight = tasks.derive(tasks.parse({**RECORD, "dep_delay": "40", "arr_delay": "NA"}))
    assert flight["delay"] == 40


@pytest.mark.parametrize(("delay", "late"), [("14", False), ("15", True), ("-3", False)])
def test_late_is_fifteen_minutes_or_more(tasks: ModuleType, delay: str, late: bool) -> None:
    flight = tasks.derive(tasks.parse({**RECORD, "arr_delay": delay}))
    assert goes_to(tasks, flight) == {"delays", "late" if late else "on-time"}


def test_every_bad_record_is_refused_with_a_reason(tasks: ModuleType, prepare: ModuleType) -> None:
    first = {key: value for key, value in RECORD.items() if key != "row"}
    records = list(prepare.bad_records(first, 336_776))
    assert [record["row"] for record in records] == [str(336_777 + n) for n in range(7)]
    for record in records:
        with pytest.raises(ValueError, match=r".") as refused:
            tasks.parse(record)
        assert tasks.is_value_error({}, record, refused.value, None)
        described = tasks.describe({}, record, refused.value)
        assert described["record"] == record
        assert described["error"]


LEFT_MS = 1357035420_000  # 10:17 in UTC; 10:15 was planned


def test_windows_see_when_a_flight_left_in_utc(windows: ModuleType) -> None:
    assert windows.event_time(RECORD) == LEFT_MS
    assert windows.depart(RECORD) == {
        "departed": LEFT_MS,
        "airport": "EWR",
        "airline": "UA",
        "aircraft": "N14228",
        "late": 0,
    }


def test_a_cancelled_flight_has_a_time_and_is_in_no_window(windows: ModuleType) -> None:
    gone = {**RECORD, **dict.fromkeys(("dep_time", "dep_delay", "air_time"), "NA")}
    assert windows.event_time(gone) == LEFT_MS - 2 * windows.MINUTE_MS
    assert windows.depart(gone) == []


@pytest.mark.parametrize(("air_time", "minutes"), [("227", 227), ("695", 695), ("NA", 720)])
def test_a_flight_is_reported_within_the_disorder_that_its_job_allows(
    prepare: ModuleType, air_time: str, minutes: int
) -> None:
    reported = prepare.reported({**RECORD, "air_time": air_time})
    assert reported == LEFT_MS + minutes * 60_000


def test_what_windows_give_has_times_as_the_data_has_them(windows: ModuleType) -> None:
    event = {"group_key": "EWR", "lower_bound": LEFT_MS, "upper_bound": LEFT_MS + 60_000}
    state = {"n": 4, "sum": 1, "average": 0.25}
    hour, week, stay = (
        windows.departures({}, None, None, event, 3),
        windows.late_share({}, None, None, event, state),
        windows.stay({}, None, None, event, 2),
    )
    assert hour == {"airport": "EWR", "hour": "2013-01-01T10:17:00Z", "departures": 3}
    assert (week["day"], week["flights"], week["late"], week["share"]) == (hour["hour"], 4, 1, 0.25)
    assert (stay["first"], stay["last"]) == (hour["hour"], "2013-01-01T10:18:00Z")
