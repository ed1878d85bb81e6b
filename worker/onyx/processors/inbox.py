"""What a processor is given to work on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items in order. One that stays is there at the next call: remove an item when it is done with
    and all that it makes has been offered."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = deque(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """All items, which stay. Meanwhile none may be removed."""
        return iter(self._items)

    def peek(self) -> T | None:
        """The first item, which stays; None: the inbox is empty."""
        return self._items[0] if self._items else None

    def poll(self) -> T | None:
        """The first item, which is removed; None: the inbox is empty."""
        return self._items.popleft() if self._items else None

    def remove(self) -> None:
        """Remove the first item. Raises IndexError: the inbox is empty."""
        self._items.popleft()

    def drain(self) -> list[T]:
        """All items, which are removed."""
        items = list(self._items)
        self._items.clear()
        return items
