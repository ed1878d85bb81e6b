"""What a processor sends, and what it saves. Both are bounded, and refuse what is too much.

An item that was refused is to be offered again, before any other. This is checked: a processor that
forgets one would lose data under load only, which is when nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.errors import UserFunctionError

Accept = Callable[[Any], tuple[Any, int]]
"""An item in the form that is sent, and for how many segments it counts."""


class Outbox:
    """The items that a processor has offered since the engine took them last."""

    def __init__(self, accept: Accept, segments_max: int, entries_max: int) -> None:
        """
        Args:
            accept: raises why an item cannot be sent.
            segments_max: at so many segments the outbox is full.
            entries_max: so many entries of the snapshot are taken at once.
        """
        self._accept = accept
        self._segments_max = segments_max
        self._entries_max = entries_max
        self._items: list[Any] = []
        self._segments = 0
        self._entries: list[tuple[Any, Any]] = []
        self._dropped: list[Any] = []
        self._refused: list[Any] = []
        """The item or entry that was refused, until it is offered again."""
        self._must_return = False

    # What a processor calls.

    def offer(self, item: Any) -> bool:
        """Send an item: a segment, or a record batch where the task has columns.

        Returns:
            False: there is no room. Return from the method, and offer it again when it is called
            again.

        Raises:
            SegmentError: it cannot be sent.
            UserFunctionError: it is not what was refused last, or was refused in the same call.
        """
        self._check_turn(item)
        if self._segments >= self._segments_max:
            return self._refuse(item)
        accepted, segments = self._accept(item)
        self._items.append(accepted)
        self._segments += segments
        return True

    def offer_to_snapshot(self, key: Any, value: Any) -> bool:
        """Save an entry of the state, in `save_to_snapshot`. Both are anything that a segment may
        hold. Returns and raises as `offer`."""
        self._check_turn((key, value))
        if len(self._entries) >= self._entries_max:
            return self._refuse((key, value))
        self._entries.append((key, value))
        return True

    def drop_from_snapshot(self, key: Any) -> None:
        """An entry is gone. Only where the processor saves changes: what is not offered is gone
        otherwise."""
        self._dropped.append(key)

    def _check_turn(self, item: Any) -> None:
        if self._must_return:
            raise UserFunctionError(
                "the outbox has refused an item, and is offered one in the same call: return from "
                "the method when offer returns False, and offer that item at the next call"
            )
        if self._refused:
            refused = self._refused.pop()
            if not _same(refused, item):
                raise UserFunctionError(
                    "the outbox is offered another item than the one that it refused, which would "
                    "be lost: keep what is refused, and offer it at the next call"
                )

    def _refuse(self, item: Any) -> bool:
        self._refused, self._must_return = [item], True
        return False

    # What the engine calls.

    @property
    def owes(self) -> bool:
        """Whether the processor still has to offer what was refused."""
        return bool(self._refused)

    def take(self) -> list[Any]:
        """The items, accepted; there is room again."""
        items, self._items = self._items, []
        self._segments, self._must_return = 0, False
        return items

    def take_entries(self) -> tuple[list[tuple[Any, Any]], list[Any]]:
        """The entries of the snapshot, and the keys that are gone; there is room again."""
        entries, dropped = self._entries, self._dropped
        self._entries, self._dropped, self._must_return = [], [], False
        return entries, dropped


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    # Frames compare row by row: two that are not the same object are two.
    return isinstance(one, dict | tuple) and bool(one == other)
