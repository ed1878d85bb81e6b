"""Inputs with a journal as workers open them, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.jobs.live_inputs import Owner

from onyx.errors import UserError

FN = {"fn": "f:rows"}


def rows(cursor: Any) -> Iterator[Any]:
    for n in range(cursor or 0, 10):
        yield {"n": n}, n + 1


def owner(before: Owner | None = None, position: int | None = None) -> Owner:
    return Owner(
        "iterator",
        FN,
        before.store if before else None,
        2 if before else 1,
        before.cursors(position) if before else None,
        functions={"f:rows": rows},
    )


def test_the_next_owner_goes_on_behind_what_is_complete() -> None:
    first = owner()
    assert first.read(4) == [{"n": n} for n in range(4)]
    (cursor,) = first.cursors(2).values()
    assert cursor.position <= 2
    second = owner(first, position=2)
    (reader,) = second.readers.values()
    again = range(cursor.position, 10)
    assert second.read(len(again)) == [{"n": n} for n in again]
    second.until(reader.exhausted)
    for each in (first, second):
        each.close()


def test_positions_that_were_given_away_and_never_read_are_no_cursor() -> None:
    """At-most-once: what was reserved when an owner died counts as read."""
    first = owner()
    first.read(4)
    (cursor,) = first.cursors(1_000).values()
    assert cursor.position <= 4
    second = owner(first, 1_000)
    assert second.read(1)
    for each in (first, second):
        each.close()


def test_what_is_no_segment_ends_the_input() -> None:
    bad = Owner("iterator", FN, functions={"f:rows": lambda cursor: iter([{"n": object()}])})
    with pytest.raises(UserError, match="'n' holds"):
        bad.read(1)
    bad.close()


def test_a_function_that_returns_no_source_is_named() -> None:
    bad = Owner("source", FN, functions={"f:rows": lambda *arguments: 7})
    with pytest.raises(
        UserError, match=r"f:rows returned a int; return an onyx\.plugin\.LiveSource"
    ):
        bad.read(1)
    bad.close()
