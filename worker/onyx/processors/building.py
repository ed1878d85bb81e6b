"""Building blocks of processors: what goes on where a full outbox has stopped it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_NOTHING: Any = object()


class Traverser(Generic[T]):
    """Items one by one. The one that was refused comes again."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._next: Any = _NOTHING

    def offer_all(self, offer: Callable[[T], bool]) -> bool:
        """Offer the items that are left, until one is refused; whether all have been taken."""
        while True:
            if self._next is _NOTHING:
                self._next = next(self._items, _NOTHING)
            if self._next is _NOTHING:
                return True
            if not offer(self._next):
                return False
            self._next = _NOTHING


def traverse(items: Iterable[T]) -> Traverser[T]:
    """A traverser of an iterable: a list, a generator, the items of a dict."""
    return Traverser(items)


def traverse_items(*items: T) -> Traverser[T]:
    """A traverser of these items."""
    return Traverser(items)


class FlatMapper(Generic[T]):
    """Sends what a function makes of each item, and is called again for an item of which not all
    was taken."""

    def __init__(self, offer: Callable[[Any], bool], fn: Callable[[T], Iterable[Any]]) -> None:
        """
        Args:
            offer: takes what is made.
            fn: called once for each item.
        """
        self._offer = offer
        self._fn = fn
        self._left: Traverser[Any] | None = None

    def try_process(self, item: T) -> bool:
        """Send what is made of an item, or what is left of that; whether all of it was taken."""
        if self._left is None:
            self._left = Traverser(self._fn(item))
        if not self._left.offer_all(self._offer):
            return False
        self._left = None
        return True
