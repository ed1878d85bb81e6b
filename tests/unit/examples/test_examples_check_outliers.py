"""The check of the flights' outliers: what it expects."""

from __future__ import annotations

import importlib
from pathlib import Path

import pandas as pd
import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "flights"
FLIGHTS = [
    # origin, dest, dep_time, delay
    ("JFK", "ATL", 700, 0),
    ("JFK", "ATL", 800, 481),
    ("EWR", "ATL", 800, 999),
    ("JFK", "ATL", None, 900),
    ("JFK", "BOS", 900, 200),
    ("JFK", "BOS", 930, 10),
]


def test_outliers_are_four_hours_later_than_the_mean_of_those_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    check = importlib.import_module("check_outliers")
    flights = pd.DataFrame(FLIGHTS, columns=["origin", "dest", "dep_time", "delay"])
    found = check.expected_outliers(flights.assign(row=range(1, len(FLIGHTS) + 1)))
    assert found.to_dict("records") == [
        {"row": 2, "destination": "ATL", "delay": 481, "mean": 240.5}
    ]
