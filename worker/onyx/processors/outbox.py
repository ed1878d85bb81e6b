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


class _Bucket:
    """What was taken, up to a limit, and what was refused until it is offered again."""

    __slots__ = ("_most", "_must_return", "_refused", "_taken", "weight")

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: list[Any] = []
        self.weight = 0
        self._refused: list[Any] = []
        self._must_return = False

    @property
    def owes(self) -> bool:
        """Whether what was refused is still to be offered again."""
        return bool(self._refused)

    def offer(self, item: Any, accept: Accept) -> bool:
        """Take an item, or refuse it. Raises as `Outbox.offer`."""
        if self._must_return:
            raise UserFunctionError(
                "the outbox has refused an item, and is offered one in the same call: return from "
                "the method when offer returns False, and offer that item at the next call"
            )
        if self._refused and not _same(self._refused.pop(), item):
            raise UserFunctionError(
                "the outbox is offered another item than the one that it refused, which would be "
                "lost: keep what is refused, and offer it at the next call"
            )
        if self.weight >= self._most:
            self._refused, self._must_return = [item], True
            return False
        accepted, weight = accept(item)
        self._taken.append(accepted)
        self.weight += weight
        return True

    def take(self) -> list[Any]:
        """What was taken; there is room again."""
        taken, self._taken = self._taken, []
        self.weight, self._must_return = 0, False
        return taken


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
        self._items = _Bucket(segments_max)
        self._entries = _Bucket(entries_max)
        self._dropped: list[Any] = []

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
        return self._items.offer(item, self._accept)

    def offer_to_snapshot(self, key: Any, value: Any) -> bool:
        """Save an entry of the state, in `save_to_snapshot`. Both are anything that a segment may
        hold. Returns and raises as `offer`."""
        return self._entries.offer((key, value), _as_it_is)

    def drop_from_snapshot(self, key: Any) -> None:
        """An entry is gone. Only where the processor saves changes: what is not offered is gone
        otherwise."""
        self._dropped.append(key)

    # What the engine calls.

    @property
    def segments(self) -> int:
        """How many segments the items count for."""
        return self._items.weight

    @property
    def owes(self) -> bool:
        """Whether the processor still has to offer an item that was refused."""
        return self._items.owes

    @property
    def owes_entry(self) -> bool:
        """Whether it still has to offer an entry that was refused."""
        return self._entries.owes

    def take(self) -> list[Any]:
        """The items, accepted; there is room again."""
        return self._items.take()

    def take_entries(self) -> tuple[list[tuple[Any, Any]], list[Any]]:
        """The entries of the snapshot, and the keys that are gone; there is room again."""
        dropped, self._dropped = self._dropped, []
        return self._entries.take(), dropped


def _as_it_is(item: Any) -> tuple[Any, int]:
    return item, 1


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    # Frames compare row by row: two that are not the same object are two.
    return isinstance(one, dict | tuple) and bool(one == other)
