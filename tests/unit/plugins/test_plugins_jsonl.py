"""Segments as JSON: what JSON lacks is never written as something else in silence."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.plugins.jsonl import JsonLines, Nan

NAN, INFINITY = float("nan"), float("inf")


def lines(nan: Nan = "error") -> JsonLines:
    return JsonLines(plugin_context({}), nan)


@pytest.mark.parametrize(
    "segment", [{"bad": NAN}, {"bad": -INFINITY, "z": None}, {"z": None, "bad": [1, {"deep": NAN}]}]
)
def test_what_is_not_finite_is_refused_with_its_key_and_the_option(segment: Any) -> None:
    with pytest.raises(UserError, match=r"key 'bad' holds NaN or an infinity.* set option nan"):
        lines().encode([{"n": 1.5}, segment])
    with pytest.raises(UserError, match="key 'bad'"):
        lines().encode_each([segment])


@pytest.mark.parametrize(
    ("nan", "written"),
    [
        ("null", b'{"a":null,"b":[null,{"c":null}],"n":null}\n'),
        ("text", b'{"a":"NaN","b":["Infinity",{"c":"-Infinity"}],"n":null}\n'),
    ],
)
def test_the_job_may_say_what_is_written_for_it(nan: Nan, written: bytes) -> None:
    segment = {"a": NAN, "b": [INFINITY, {"c": -INFINITY}], "n": None}
    assert lines(nan).encode([segment]) == written
    assert lines(nan).encode_each([segment]) == [written.rstrip()]


def test_null_and_text_that_says_null_are_written_as_they_are() -> None:
    assert (
        lines().encode([{"a": None, "b": "null", "c": 1.5}]) == b'{"a":null,"b":"null","c":1.5}\n'
    )


def test_types_that_json_lacks_are_text() -> None:
    segment = {"d": dt.date(2026, 1, 2), "x": Decimal("1.50"), "t": (1, dt.timedelta(seconds=5))}
    assert lines().encode([segment]) == b'{"d":"2026-01-02","x":"1.50","t":[1,"PT5S"]}\n'
