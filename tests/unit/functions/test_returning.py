"""`ack_return`: a value for the segment that a function works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from onyx import ack_return
from onyx.codec.values import size_bytes
from onyx.errors import UserError
from onyx.functions.returning import (
    LOST,
    VALUE_BYTES_MAX,
    Returned,
    collecting,
    item_by_item,
    lost,
    one_by_one,
)
from onyx.processors import Inbox


def given(count: int, calls: list[tuple[str, Any]]) -> list[Returned]:
    with collecting({"k": "sum"}, count, size_bytes) as found:
        for key, value in calls:
            ack_return(key, value)
    return found


def test_a_function_of_one_segment_gives_back_for_this_one() -> None:
    with collecting({"k": "sum"}, 3, size_bytes) as found:
        for segment in one_by_one([10, 20, 30]):
            if segment != 20:
                ack_return("k", segment)
    assert found == [Returned(0, "k", 10), Returned(2, "k", 30)]


@pytest.mark.parametrize("values", [[1, None, 3], pa.array([1, None, 3])])
def test_a_function_of_a_batch_gives_back_for_each(values: Any) -> None:
    assert given(3, [("k", values)]) == [Returned(0, "k", 1), Returned(2, "k", 3)]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (("other", [1]), "the job names no such key; add other: sum"),
        (("k", [1, 2]), "gives 2 values for 1 segments"),
    ],
)
def test_a_call_that_is_wrong_raises(call: tuple[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        given(1, [call])


@pytest.mark.parametrize(
    ("value", "why"),
    [("x" * VALUE_BYTES_MAX, "at most 65,536 are possible"), (object(), "holds an object")],
)
def test_a_value_that_cannot_be_given_back_is_an_error_for_its_key(value: Any, why: str) -> None:
    good, bad = given(2, [("k", [1, value])])
    assert (good.value, good.error) == (1, "")
    assert (bad.at, bad.key, bad.value) == (1, "k", None)
    assert why in bad.error


@pytest.mark.parametrize("keys", [{}, None])
def test_where_nobody_asks_nothing_is_given_back(keys: dict[str, str] | None) -> None:
    if keys is None:
        ack_return("k", object())
        return
    with collecting(keys, 1, size_bytes) as found:
        ack_return("k", object())
    assert found == []


TAKES: dict[str, Callable[[Inbox[Any]], Any]] = {
    "peek and remove": lambda inbox: (inbox.peek(), ack_return("k", 1), inbox.remove()),
    "poll": lambda inbox: (inbox.poll(), ack_return("k", 1)),
    "iterate": lambda inbox: [ack_return("k", 1) for _ in inbox] and inbox.drain(),
}


@pytest.mark.parametrize("how", TAKES)
def test_a_processor_gives_back_for_the_item_that_it_has(how: str) -> None:
    inbox = Inbox("abc")
    with collecting({"k": "sum"}, 3, size_bytes) as found, item_by_item(lambda: inbox.last):
        while inbox:
            TAKES[how](inbox)
    assert [each.at for each in found] == [0, 1, 2]


def test_what_a_function_does_not_get_again_is_lost() -> None:
    assert lost({"a": "sum", "b": "max"}, [True, False]) == [
        Returned(1, "a", None, LOST),
        Returned(1, "b", None, LOST),
    ]
    assert lost({"a": "sum"}, None) == lost({}, [False]) == []
