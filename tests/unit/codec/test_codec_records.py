"""Records of state logs as bytes: what comes back, what is refused, and what the error names."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any, get_args

import pytest

from onyx.codec.values import decode_records, encode_records
from onyx.errors import SegmentError
from onyx.keystate.records import (
    AddToSessions,
    AddUpdates,
    AnyRecord,
    ClearExtent,
    DeleteGroups,
    DeleteTriggerStates,
    Fired,
    FiredGroups,
    FiringProgress,
    JoinRows,
    JoinSchema,
    PutEntries,
    Record,
    SetArrays,
    SetSessionArrays,
    SetSessions,
    SetStates,
    SetTriggerStates,
    SpooledEmitted,
    SpooledFired,
    SpooledPart,
    StagedOutput,
    TimerDue,
    WatermarkReached,
)

COUNTED = SetStates("visits", 0, ["a"], [3])
EVERY: list[Record] = [
    COUNTED,
    AddUpdates("visits", 0, 7, [{"n": 1}]),
    PutEntries("visits", 0, "a", ["x", 1, "y", [2.5]]),
    DeleteGroups("visits", 0, [b"x", None]),
    SetArrays("visits", 1, "ints", [b"\1" + 7 * b"\0"], ["<i8"], [b"\2" + 7 * b"\0"]),
    SetArrays("visits", 1, "any", [None, [1, "a"]], ["<f8"], [16 * b"\0"]),
    ClearExtent("visits", 2**40),
    SetSessionArrays(
        "visits",
        "ints",
        [8 * b"\2"],
        b"\1\0\0\0",
        [8 * b"\3", 8 * b"\4"],
        ["<i8"],
        [8 * b"\0"],
        {"t": b"\1"},
    ),
    SetSessions("visits", ["a"], [None], [[1, 2.5]], [[2, 3.5]], [[1, 1]], [[["t"], []]]),
    AddToSessions("visits", "a", "key", [1], [{"n": 1}]),
    Fired("visits", "t", 0, ["b"]),
    FiredGroups("visits", "t", 0, ["b"]),
    FiringProgress("visits", "t", "timer-tick", None, ["b"]),
    FiringProgress("visits", "t", "job-completed", 4, None),
    SetTriggerStates("visits", "t", ["a"], [4]),
    DeleteTriggerStates("visits", "t", ["a"]),
    TimerDue("visits", "t", 1_700_000_000_000),
    WatermarkReached("visits", 7.5),
    SpooledPart("visits", "p-1", [2, 3], ["key_int"], 7, 9, False, False, False, True, -5),
    SpooledFired("visits", "t", "r-1", "watermark", [2], 7.5),
    SpooledEmitted("visits", "t", "r-1", 0, 3),
    JoinSchema("paid", 1, b"schema"),
    JoinRows("paid", 1, 2, [b"rows", b"of"]),
    StagedOutput({"part": "0001", "size": 4}),
]


def test_records_of_every_type_come_back() -> None:
    assert {type(each) for each in EVERY} == set(get_args(AnyRecord))
    assert decode_records(encode_records(EVERY)) == EVERY


def test_a_state_comes_back_as_what_it_was_whatever_its_keys() -> None:
    state = {(1, "a"): Decimal("1.50"), date(2026, 1, 1): (1, [2, (3,)]), 4: {"x": None}, "s": b"y"}
    records: list[Record] = [SetStates("visits", 0, [(1, 2)], [state]), COUNTED]
    assert repr(decode_records(encode_records(records))) == repr(records)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({1, 2}, "a set: make it a list"),
        (2**64, "an int beyond 64 bits: make it a str, or a Decimal"),
        (len, "a builtin_function_or_method: use None"),
        ({"a": {frozenset(): 1}}, "a key that is a frozenset"),
    ],
)
def test_the_error_names_the_window_whose_state_is_refused(state: Any, reason: str) -> None:
    with pytest.raises(SegmentError, match=f"^state of window users cannot.* it holds {reason}"):
        encode_records([COUNTED, SetStates("users", 0, ["a"], [state])])


@pytest.mark.parametrize("data", [b"", b"\x91\x91\xa3sum", b"\x91\x92\xa3set\x01", b"\x81\x00\x00"])
def test_other_bytes_are_no_records(data: bytes) -> None:
    with pytest.raises(SegmentError, match="are not a list of records"):
        decode_records(data)
