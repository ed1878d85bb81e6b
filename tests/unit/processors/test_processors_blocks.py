"""Inboxes, outboxes, traversers and flat-mappers on their own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import UserFunctionError
from onyx.processors import FlatMapper, Inbox, Outbox, traverse, traverse_items

A, B = {"n": 1}, {"n": 2}


def outbox(segments_max: int = 1) -> Outbox:
    return Outbox(lambda item: (item, 1), segments_max, 1)


def test_an_inbox_gives_items_in_order_and_keeps_what_is_not_removed() -> None:
    inbox = Inbox([A, B])
    assert (inbox.peek(), list(inbox), len(inbox)) == (A, [A, B], 2)
    inbox.remove()
    assert (inbox.poll(), inbox.poll(), inbox.peek(), inbox.drain()) == (B, None, None, [])


def test_an_outbox_takes_again_what_it_has_refused() -> None:
    out = outbox()
    assert (out.offer(A), out.offer(B), out.owes) == (True, False, True)
    assert out.take() == [A]
    assert (out.offer(dict(B)), out.owes, out.take()) == (True, False, [B])


def test_an_outbox_says_so_when_what_it_has_refused_would_be_lost() -> None:
    out = outbox()
    assert (out.offer(A), out.offer(B)) == (True, False)
    with pytest.raises(UserFunctionError, match="in the same call"):
        out.offer(B)
    out.take()
    with pytest.raises(UserFunctionError, match="another item than the one that it refused"):
        out.offer(A)


def test_entries_of_a_snapshot_have_room_of_their_own() -> None:
    out = outbox()
    assert (out.offer(A), out.offer_to_snapshot("a", 1)) == (True, True)
    assert not out.offer_to_snapshot("b", 2)
    out.drop_from_snapshot("c")
    assert out.take_entries() == ([("a", 1)], ["c"])
    assert out.offer_to_snapshot("b", 2)


@given(st.lists(st.integers()), st.lists(st.integers(0, 3), min_size=1))
def test_a_traverser_gives_each_item_once_in_order(items: list[int], rooms: list[int]) -> None:
    taken: list[int] = []
    traverser = traverse(iter(items))
    done = False
    for room in [*rooms, len(items)]:
        end = len(taken) + room

        def offer(item: int, end: int = end) -> bool:
            if len(taken) >= end:
                return False
            taken.append(item)
            return True

        done = traverser.offer_all(offer)
    assert done
    assert taken == items


@given(st.lists(st.lists(st.integers(), max_size=4)), st.integers(1, 3))
def test_a_flat_mapper_calls_once_for_each_item(items: list[list[int]], room: int) -> None:
    out, called, made = outbox(room), list[int](), list[Any]()

    def numbered(item: list[int]) -> list[dict[str, int]]:
        called.append(len(called))
        return [{"n": n} for n in item]

    mapper = FlatMapper(out.offer, numbered)
    for item in items:
        while not mapper.try_process(item):
            made += out.take()
    made += out.take()
    assert made == [{"n": n} for item in items for n in item]
    assert len(called) == len(items)
    assert traverse_items(1, 2).offer_all(lambda item: True)
