"""Lists of values: what is refused, and what the error says of where it comes from."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from onyx.codec.values import decode_values, encode_values
from onyx.errors import SegmentError

COUNTED = ["set", "visits", [0], ["a"], [3]]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({1, 2}, "a set: make it a list"),
        (2**64, "an int beyond 64 bits: make it a str, or a Decimal"),
        (len, "a builtin_function_or_method: use None"),
        ({"a": {frozenset(): 1}}, "a key that is a frozenset"),
    ],
)
def test_a_window_after_the_first_may_keep_no_more_than_the_first(state: Any, reason: str) -> None:
    with pytest.raises(SegmentError, match=f"^state of window users cannot.* it holds {reason}"):
        encode_values([COUNTED, ["set", "users", [0], ["a"], [state]]])


def test_what_is_no_record_is_named_without_a_window() -> None:
    with pytest.raises(SegmentError, match=r"^state cannot be written: it holds a set"):
        encode_values(["a", {1}])


def test_records_of_several_windows_come_back() -> None:
    records = [COUNTED, ["set", "users", [0], ["a"], [["ada"]]], COUNTED, ["watermark", 7], ["x"]]
    assert decode_values(encode_values(records)) == records


def test_a_state_comes_back_as_what_it_was_whatever_its_keys() -> None:
    state = {(1, "a"): Decimal("1.50"), date(2026, 1, 1): (1, [2, (3,)]), 4: {"x": None}, "s": b"y"}
    record = ["set", "visits", [0], ["a"], [state]]
    assert repr(decode_values(encode_values([record]))) == repr([record])
