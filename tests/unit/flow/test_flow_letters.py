"""Dead letters: they show what failed, and can always travel."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.codec.refusals import refusal
from onyx.errors import SegmentError
from onyx.flow.dead_letters import LETTER_BYTES_MAX, dead_letter, described, redriven


def letter(segment: dict[Any, Any], error: Exception | None = None) -> dict[str, Any]:
    return dead_letter("j", "work", segment, described(error or ValueError("no"), ""), 1, 1_000)


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


# --- a letter is made a segment again ------------------------------------------------------------

travels = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False), st.text(), st.binary(), st.dates(), st.times(),
        st.timedeltas(), st.decimals(allow_nan=False, allow_infinity=False),
        st.datetimes(timezones=st.just(UTC)),
    ),
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(st.text(), inner)
    ),
    max_leaves=8,
)  # fmt: skip


def as_json_lines_have_it(made: dict[str, Any]) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(made))


@given(st.dictionaries(st.text(), travels))
def test_a_segment_is_made_again_from_what_json_has_of_its_letter(segment: dict[str, Any]) -> None:
    made = letter(segment)
    found = as_json_lines_have_it(made)
    if "inf" in repr(segment):  # which JSON has as text, where an output is told to write it
        found["segment"] = made["segment"]
    assert redriven(found["segment"], found["types"]) == segment


def test_a_letter_names_what_json_has_in_another_form() -> None:
    segment = {
        "at": datetime(2026, 11, 29, 12, tzinfo=UTC),
        "a/b": {"price": Decimal("1.10"), "n": 1},
        "many": (b"\x00", date(2026, 1, 2), [time(1, 2), timedelta(hours=1)]),
    }
    made = letter(segment)
    assert made["types"].split("\n") == [
        "datetime /at", "Decimal /a~1b/price", "tuple /many", "bytes /many/0", "date /many/1",
        "time /many/2/0", "timedelta /many/2/1",
    ]  # fmt: skip
    found = as_json_lines_have_it(made)
    assert redriven(found["segment"], found["types"]) == segment
    assert redriven(made["segment"], made["types"]) == segment, "as Parquet has it"


def test_floats_that_json_lacks_are_made_again_from_their_text() -> None:
    assert redriven({"x": "-Infinity"}, "float /x") == {"x": -math.inf}


@pytest.mark.parametrize(
    "segment",
    [{"a": {1}}, {1: 1}, {"a": "\ud800"}, {"a": "x" * LETTER_BYTES_MAX}, {"a": deep}],
    ids=["set", "key", "half a character", "large", "deep"],
)
def test_a_segment_that_is_not_shown_whole_is_not_made_again(segment: dict[Any, Any]) -> None:
    made = letter(segment)
    assert made["types"].startswith("cut ")
    with pytest.raises(SegmentError, match="cut"):
        redriven(made["segment"], made["types"])


@pytest.mark.parametrize("types", ["date /a", "date /b", "date", "x /a", "date /a/b/0", "tuple /n"])
def test_types_that_are_not_those_of_the_segment_are_an_error(types: str) -> None:
    with pytest.raises(SegmentError, match="the letter says"):
        redriven({"a": "never", "n": 1}, types)
