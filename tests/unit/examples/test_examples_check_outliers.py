"""The check of the flights' outliers: what it expects."""

from __future__ import annotations

import importlib
from pathlib import Path

import pandas as pd
import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "flights"
FLIGHTS = [
    # dest, dep_time, delay
    ("ATL", 700, 0),
    ("ATL", 800, 481),
    ("ATL", None, 900),
    ("BOS", 900, 200),
    ("BOS", 930, 10),
]


def test_outliers_are_four_hours_later_than_the_mean_of_those_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    check = importlib.import_module("check_outliers")
    flights = pd.DataFrame(FLIGHTS, columns=["dest", "dep_time", "delay"])
    found = check.expected_outliers(flights.assign(row=range(1, len(FLIGHTS) + 1)))
    assert found.to_dict("records") == [
        {"row": 2, "destination": "ATL", "delay": 481, "mean": 240.5}
    ]
