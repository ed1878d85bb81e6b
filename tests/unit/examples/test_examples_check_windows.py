"""The check of the flights' windows: what it expects, and that it sees what is wrong."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "flights"
LEFT = [
    # airport, airline, aircraft, when, late
    ("EWR", "UA", "N1", "2013-01-09T23:59:00Z", 1),
    ("EWR", "UA", "N1", "2013-01-07T23:59:00Z", 0),
    ("JFK", "UA", "N1", "2013-01-12T00:00:00Z", 0),
    ("JFK", "UA", "N2", "2013-01-12T00:59:00Z", 0),
]
HOURS = [
    {"airport": "EWR", "hour": "2013-01-07T23:00:00Z", "departures": 1},
    {"airport": "EWR", "hour": "2013-01-09T23:00:00Z", "departures": 1},
    {"airport": "JFK", "hour": "2013-01-12T00:00:00Z", "departures": 2},
]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("check_windows")


@pytest.fixture
def flown() -> pd.DataFrame:
    frame = pd.DataFrame(LEFT, columns=["airport", "airline", "aircraft", "left", "late"])
    return frame.assign(left=pd.to_datetime(frame["left"]), row=range(1, len(LEFT) + 1))


def faults(check: ModuleType, folder: Path, flown: pd.DataFrame, hours: list[Any]) -> list[str]:
    (folder / "part.jsonl").write_text("".join(json.dumps(each) + "\n" for each in hours))
    outcome = check.check_windows("departures", folder, check.expected_departures(flown))
    found: list[str] = outcome.faults
    return found


def test_a_stay_goes_on_over_a_gap_of_two_days_and_not_over_a_longer_one(
    check: ModuleType, flown: pd.DataFrame
) -> None:
    stays = check.expected_stays(flown).reset_index()

    assert stays.to_numpy().tolist() == [
        ["N1", "2013-01-07T23:59:00Z", "2013-01-09T23:59:00Z", 2],
        ["N1", "2013-01-12T00:00:00Z", "2013-01-12T00:00:00Z", 1],
        ["N2", "2013-01-12T00:59:00Z", "2013-01-12T00:59:00Z", 1],
    ]


def test_a_flight_is_in_the_seven_weeks_that_begin_until_its_day(
    check: ModuleType, flown: pd.DataFrame
) -> None:
    shares = check.expected_late_share(flown).loc["UA"]

    assert (shares.index[0], shares.index[-1]) == ("2013-01-01T00:00:00Z", "2013-01-12T00:00:00Z")
    assert shares["flights"].sum() == 7 * len(LEFT)
    assert shares.loc["2013-01-06T00:00:00Z"].tolist() == [4, 1, 0.25]


@pytest.mark.parametrize("repeats", [1, 2])
def test_windows_agree_though_they_were_written_twice(
    check: ModuleType, flown: pd.DataFrame, tmp_path: Path, repeats: int
) -> None:
    assert faults(check, tmp_path, flown, HOURS * repeats) == []


@pytest.mark.parametrize(
    ("hours", "fault"),
    [
        (HOURS[1:], "missing: 1 rows (('EWR', '2013-01-07T23:00:00Z'))"),
        ([*HOURS, {**HOURS[0], "airport": "LGA"}], "not expected: 1 rows (('LGA', "),
        ([{**HOURS[0], "departures": 2}, *HOURS[1:]], "other departures: 1 rows (('EWR', "),
        ([*HOURS, {**HOURS[0], "departures": 2}], "was written twice with different content"),
    ],
)
def test_a_window_that_differs_is_named(
    check: ModuleType, flown: pd.DataFrame, tmp_path: Path, hours: list[Any], fault: str
) -> None:
    found = faults(check, tmp_path, flown, hours)

    assert len(found) == 1
    assert fault in found[0]
