"""Dead letters: they show what failed, and can always travel."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.codec.refusals import refusal
from onyx.flow.dead_letters import LETTER_BYTES_MAX, dead_letter


def letter(segment: dict[Any, Any], error: Exception | None = None) -> dict[str, Any]:
    return dead_letter("j", "work", segment, error or ValueError("no"), "", 1, 1_000)


class Rude:
    def __repr__(self) -> str:
        raise SystemExit("not me")


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("never")


circle: list[Any] = []
circle.append(circle)
deep: Any = 1
for _ in range(100):
    deep = [deep]

SHOWN = {
    "as it is": ({"a": [1, 2.5, None, True, b"x", "y"]}, {"a": [1, 2.5, None, True, b"x", "y"]}),
    "types that travel": ({"a": Decimal("1.5")}, {"a": Decimal("1.5")}),
    "a time without a zone": (
        {"a": datetime(2013, 1, 1, tzinfo=UTC).replace(tzinfo=None)},
        {"a": "datetime.datetime(2013, 1, 1, 0, 0)"},
    ),
    "a set": ({"a": {1}}, {"a": "{1}"}),
    "keys that are no text": ({1: {(2, 3): "x"}}, {"1": {"(2, 3)": "x"}}),
    "a large integer": ({"a": 2**64}, {"a": str(2**64)}),
    "half a character": ({"a": "\ud800"}, {"a": "?"}),
    "what cannot be shown": ({"a": Rude()}, {"a": "a Rude that repr() cannot show: SystemExit"}),
}


@pytest.mark.parametrize("name", SHOWN)
def test_values_that_cannot_travel_are_shown_as_text(name: str) -> None:
    segment, shown = SHOWN[name]
    assert letter(segment)["segment"] == shown


HUGE: dict[str, Callable[[], dict[str, Any]]] = {
    "text": lambda: {"a": "x" * 50_000_000},
    "bytes": lambda: {"a": b"x" * 50_000_000},
    "many keys": lambda: {str(n): n for n in range(200_000)},
    "many items": lambda: {"a": list(range(1_000_000))},
    "a circle": lambda: {"a": circle},
    "deep": lambda: {"a": deep},
    "a set": lambda: {"a": set(range(1_000_000))},
    "an integer": lambda: {"a": 1 << 100_000},
}
"""Made when they are wanted: they are 200 MB."""


@pytest.mark.parametrize("name", HUGE)
def test_a_letter_is_bounded_and_says_that_something_is_left_out(name: str) -> None:
    made = letter(HUGE[name]())
    assert refusal(made) is None
    text = repr(made["segment"])
    assert len(text) < 4 * LETTER_BYTES_MAX
    assert "..." in text or "bits" in text


def test_a_message_that_is_long_or_missing_does_no_harm() -> None:
    assert len(letter({}, ValueError("x" * 10**7))["error"]["message"]) < 10_000
    assert "__str__" in letter({}, Mute())["error"]["message"]


def test_time_is_iso_8601_with_a_zone() -> None:
    reported = letter({})["time"]
    assert datetime.fromisoformat(reported) == datetime.fromtimestamp(1, UTC)


anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
        st.datetimes(), st.times(), st.decimals(), st.complex_numbers(), st.sets(st.integers()),
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.integers() | st.text(), inner)),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text() | st.integers(), anything))
def test_a_letter_about_anything_can_travel(segment: dict[Any, Any]) -> None:
    assert refusal(letter(segment)) is None


def test_not_a_number_stays_so() -> None:
    assert math.isnan(letter({"a": math.nan})["segment"]["a"])
