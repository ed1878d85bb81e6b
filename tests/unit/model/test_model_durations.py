"""Times may be written in each way in which people write them."""

from __future__ import annotations

from typing import Any

import pytest

from onyx.model import names
from onyx.model.keys.durations import Amount, Duration
from onyx.model.report import INVALID, Report

TIME = Amount(names.TIME_UNITS)
TIMEOUT = Duration(1, 86_400_000)


@pytest.mark.parametrize(
    ("value", "amount", "ms"),
    [
        ([1, "minute"], (1, "minute"), 60_000),
        ("1 minute", (1, "minute"), 60_000),
        ("60s", (60, "seconds"), 60_000),
        ([60, "s"], (60, "seconds"), 60_000),
        ("  5   hours ", (5, "hours"), 18_000_000),
        ("250ms", (250, "milliseconds"), 250),
        ("1d", (1, "days"), 86_400_000),
        (60_000, INVALID, 60_000),
    ],
)
def test_a_time_is_read_in_each_way(value: Any, amount: Any, ms: int) -> None:
    assert TIME.read(value, "", Report()) == amount
    assert TIMEOUT.read(value, "", Report()) == ms


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("soon", 'is "soon", but must be'),
        ("1 fortnight", "fortnight"),
        ("60 s 5", "must be"),
        ("-5s", "must be"),
        ("2 days", "from 1 to 86400000"),
        ("0s", "from 1 to 86400000"),
        ([1, 2, 3], "must be"),
        (["s", 1], "must be"),
        (True, "must be"),
        (None, "must be"),
    ],
)
def test_what_is_no_time_is_refused_with_what_one_looks_like(value: Any, problem: str) -> None:
    report = Report()
    assert TIMEOUT.read(value, "t", report) is INVALID
    assert problem in str(report.problems()[0])


def test_elements_may_be_written_as_text_too() -> None:
    assert Amount(names.ELEMENT_UNITS).read("5 elements", "", Report()) == (5, "elements")
