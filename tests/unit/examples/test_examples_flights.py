"""The functions of the flights job."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

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
def prepare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("prepare")


def test_a_record_becomes_a_flight_with_types(tasks: ModuleType) -> None:
    flight = tasks.derive(tasks.parse(RECORD))
    assert (flight["row"], flight["carrier"], flight["distance"]) == (1, "UA", 1400)
    assert (flight["delay"], flight["speed"]) == (11, 370.0)
    assert flight.keys() == {*RECORD, "delay", "speed"}


def test_a_cancelled_flight_has_neither_delay_nor_speed(tasks: ModuleType) -> None:
    gone = dict.fromkeys(("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"), "NA")
    flight = tasks.derive(tasks.parse({**RECORD, **gone}))
    assert (flight["delay"], flight["speed"]) == (None, None)
    assert not tasks.flown({}, {}, flight, [flight])
    assert not tasks.is_late({}, {}, flight, [flight], 15)


def test_a_flight_that_never_arrived_is_as_late_as_it_left(tasks: ModuleType) -> None:
    flight = tasks.derive(tasks.parse({**RECORD, "dep_delay": "40", "arr_delay": "NA"}))
    assert flight["delay"] == 40


@pytest.mark.parametrize(("delay", "late"), [("14", False), ("15", True), ("-3", False)])
def test_late_is_fifteen_minutes_or_more(tasks: ModuleType, delay: str, late: bool) -> None:
    flight = tasks.derive(tasks.parse({**RECORD, "arr_delay": delay}))
    assert tasks.is_late({}, {}, flight, [flight], 15) is late


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
