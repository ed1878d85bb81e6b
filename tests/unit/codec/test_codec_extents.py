"""Extents and group keys on their way to who has asked."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from onyx.codec.questions import (
    decode_extents,
    decode_place,
    decode_selection,
    encode_extents,
    encode_place,
    encode_selection,
)
from onyx.errors import SegmentError, UserError
from onyx.keystate.extents import ALL, Extent
from onyx.keystate.selection import EVERYTHING, Inside, Place, Selection

KEYS = [
    None, 5, -5, True, "5", "", b"\x00", [1, "a"], {"a": 1, "b": None}, date(2026, 1, 2),
    (1, "a"), 0.5, Decimal("0.1"), datetime(2026, 1, 2, tzinfo=UTC),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_group_of_every_kind_arrives_as_it_was(key: Any) -> None:
    data, sent = encode_extents([Extent(key, 0, 9, 1)], 1_000)
    (found,) = decode_extents(data)
    assert (found.group, type(found.group), sent) == (key, type(key), 1)
    asked = decode_selection(encode_selection(Selection(key=key)))
    assert (asked.key, type(asked.key)) == (key, type(key))
    place = decode_place(encode_place(Place(key, 0, 5, (key,))))
    assert (place, type(place.group), type(place.of_session[0])) == (
        Place(key, 0, 5, (key,)), type(key), type(key),
    )  # fmt: skip


def test_all_groups_are_not_the_group_none() -> None:
    assert decode_selection(encode_selection(EVERYTHING)).key is ALL
    assert decode_selection(encode_selection(Selection(key=None))).key is None


@pytest.mark.parametrize(
    "asked",
    [
        EVERYTHING,
        Selection(prefix="a"),
        Selection(prefix=["a", 1]),
        Selection(prefix={"a": 1}),
        Selection(key_from=-5),
        Selection(key_from="a", key_to="b", time_from=5, time_to=math.inf),
        Selection(time_to=-1.5, after=Place({"a": [1]}, -math.inf, math.inf)),
        Selection(after=Place(None, 5, 0, ("s",))),
        Selection(inside=Inside(("a", 0, b"k"), "b", "c", 7)),
        Selection(inside=Inside(first=1, end=2**40)),
    ],
    ids=repr,
)
def test_a_question_arrives_as_it_was(asked: Selection) -> None:
    assert decode_selection(encode_selection(asked)) == asked


@pytest.mark.parametrize("text", ["", "a", "%", "AAAA", "é"])
def test_other_text_is_no_place(text: str) -> None:
    with pytest.raises(UserError, match="is not where a page has ended"):
        decode_place(text)


def test_a_session_key_arrives_with_its_extent() -> None:
    extent = Extent("a", 0, 9, 1, (("s", 1),))
    assert decode_extents(encode_extents([extent], 1_000)[0]) == [extent]


@pytest.mark.parametrize(
    "state",
    [
        0,
        1.5,
        "text",
        [{"a": 1}, None],
        {1: {"a": 2}},
        {("a", 1): 2},
        datetime(2024, 2, 29, 12, 30, 15, 250, tzinfo=UTC),
    ],
    ids=repr,
)
def test_a_state_arrives_as_it_was(state: Any) -> None:
    found = decode_extents(encode_extents([Extent("a", 0, 9, state)], 1_000)[0])
    assert found == [Extent("a", 0, 9, state)]


def test_bounds_of_a_global_window_are_infinite_still() -> None:
    extent = Extent(None, -math.inf, math.inf, 3)
    assert decode_extents(encode_extents([extent], 1_000)[0]) == [extent]


def test_as_many_are_sent_as_fit() -> None:
    extents = [Extent(number, 0, 9, "x" * 100) for number in range(50)]
    data, sent = encode_extents(extents, 1_000)
    assert decode_extents(data) == extents[:sent]
    assert sent == 9
    assert len(data) <= 1_000 + 5


def test_a_state_that_is_too_large_alone_is_told_with_its_group() -> None:
    with pytest.raises(SegmentError, match=r"state of group 'big' from 0 takes 10\d\d bytes"):
        encode_extents([Extent("big", 0, 9, "x" * 1_000)], 1_000)


def test_a_state_that_cannot_travel_is_told_with_its_group() -> None:
    with pytest.raises(SegmentError, match="state of group 'odd' from 0 cannot be sent"):
        encode_extents([Extent("odd", 0, 9, object())], 1_000)


def test_nan_is_no_key() -> None:
    with pytest.raises(UserError, match="NaN"):
        encode_selection(Selection(key=float("nan")))


@pytest.mark.parametrize("data", [b"\x01", b"\xc1", msgspec.msgpack.encode([[1, 2]])])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SegmentError):
        decode_extents(data)
    with pytest.raises(SegmentError):
        decode_selection(data + b"\x00")
