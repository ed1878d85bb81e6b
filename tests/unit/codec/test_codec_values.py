"""Lists of values: what comes back, and what is refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from onyx.codec.values import decode_values, encode_values
from onyx.errors import SegmentError


def test_what_has_no_encoding_is_refused_with_the_reason() -> None:
    with pytest.raises(SegmentError, match=r"^state cannot be written: it holds a set"):
        encode_values(["a", {1}])


def test_a_state_comes_back_as_what_it_was_whatever_its_keys() -> None:
    state = {(1, "a"): Decimal("1.50"), date(2026, 1, 1): (1, [2, (3,)]), 4: {"x": None}, "s": b"y"}
    values = ["a", state]
    assert repr(decode_values(encode_values(values))) == repr(values)
