"""What a processor is given to work on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from onyx.errors import UserFunctionError, describe_type
from onyx.functions.retry import Fail, asked_by
from onyx.functions.returning import gives_back

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items in order. One that stays is there at the next call: remove an item when it is done with
    and all that it makes has been offered."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = deque(items)
        self._count = len(self._items)
        self._removed = False
        """Whether the item that was given last is not here any more."""
        self.failed: list[tuple[int, Exception]] = []
        """The items that have failed, by number, and why."""

    @property
    def last(self) -> int:
        """The number of the item that was given last, from 0; of the first one before that."""
        return max(0, self._count - len(self._items) - self._removed)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """All items, which stay. Meanwhile none may be removed."""
        return self._each() if gives_back() else iter(self._items)

    def _each(self) -> Iterator[T]:
        items, count, self._removed = list(self._items), self._count, False
        try:
            for number, item in enumerate(items):
                self._count = count + number
                yield item
        finally:
            self._count = count

    def keep_first(self) -> None:
        """The engine takes back all items but the first."""
        self._count -= len(self._items) - 1
        self._items = deque([self._items[0]])

    def peek(self) -> T | None:
        """The first item, which stays; None: the inbox is empty."""
        self._removed = False
        return self._items[0] if self._items else None

    def poll(self) -> T | None:
        """The first item, which is removed; None: the inbox is empty."""
        self._removed = True
        return self._items.popleft() if self._items else None

    def remove(self) -> None:
        """Remove the first item. Raises IndexError: the inbox is empty."""
        self._items.popleft()
        self._removed = True

    def fail(self, why: Exception | Fail) -> None:
        """Remove the first item, which has failed: with `onyx.FAIL` or an `onyx.Retry` it is read
        again, with another exception it goes where the job sends what fails in the task. It must
        have changed nothing, and nothing may have been offered for it.

        Raises:
            IndexError: the inbox is empty.
        """
        error = asked_by(why)
        if error is None and not isinstance(why, Exception):
            raise UserFunctionError(
                f"an item fails with {describe_type(why)}: give onyx.FAIL, a Retry, or another "
                "exception"
            )
        self.remove()
        number = self._count - len(self._items) - 1
        self.failed.append((number, error or why))  # type: ignore[arg-type]

    def drain(self) -> list[T]:
        """All items, which are removed."""
        items, self._removed = list(self._items), True
        self._items.clear()
        return items
