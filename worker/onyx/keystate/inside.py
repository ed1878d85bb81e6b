"""Which part of a state a question is about: a path into its maps and lists, and a range of items.

Where the state is, only what is asked for is taken out of it, so a map of a hundred thousand items
is looked at in pages. What is not there is None: an extent has its place in pages, whatever is in
it.

Rejected: a language of paths, with filters and wildcards, as databases have. A trigger or function
can emit what needs one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.errors import UserError
from onyx.keystate.extents import Extent

Step = int | str | bytes
_STEPS = (int, str, bytes)
_KINDS = {int: 0, str: 1, bytes: 2}
"""Keys of a map in the order of answers: numbers, texts, bytes."""


class Inside(msgspec.Struct, frozen=True):
    """A part of a state."""

    path: tuple[Step, ...] = ()
    """Keys of maps and indices of lists, from the outside in."""
    first: Step | None = None
    """The first key or index of a range of items."""
    end: Step | None = None
    """The key or index before which the range ends."""
    items_max: int | None = None
    """So many items at most, the first in order."""

    def check(self) -> None:
        """Raises UserError when nothing can be meant."""
        given = [each for each in (self.first, self.end) if each is not None]
        if any(type(each) not in _STEPS for each in (*self.path, *given)):
            raise UserError("a path into a state has whole numbers and texts, and so has a range")
        if len(set(map(type, given))) > 1:
            raise UserError("a range of items begins and ends with a number, or with a text")
        if self.items_max is not None and self.items_max < 1:
            raise UserError("at least one item of a state is asked for")

    def parts_of(self, extents: Sequence[Extent]) -> Sequence[Extent]:
        """Extents with these parts of their states."""
        if self == WHOLE:
            return extents
        return [replace(each, state=self._part(each.state)) for each in extents]

    def _part(self, state: Any) -> Any:
        for step in self.path:
            state = _item(state, step)
        if (self.first, self.end, self.items_max) == (None, None, None):
            return state
        if isinstance(state, Mapping):
            return self._items(state)
        if isinstance(state, list | tuple):
            return self._slice(state)
        return None

    def _items(self, state: Mapping[Any, Any]) -> dict[Any, Any]:
        found = ((_place(key), key) for key in state if self._has(key))
        most = len(state) if self.items_max is None else self.items_max
        return {key: state[key] for _, key in nsmallest(most, found, key=itemgetter(0))}

    def _has(self, key: Any) -> bool:
        bound: Any = self.end if self.first is None else self.first
        if bound is None:
            return True
        first: Any = self.first
        end: Any = self.end
        return (
            type(key) is type(bound)
            and (first is None or key >= first)
            and (end is None or key < end)
        )

    def _slice(self, state: Sequence[Any]) -> list[Any] | None:
        first, end = self.first, self.end
        if not isinstance(first, int | None) or not isinstance(end, int | None):
            return None
        return list(islice(state[first:end], self.items_max))


WHOLE = Inside()


def _item(state: Any, step: Step) -> Any:
    if isinstance(state, Mapping):
        return state.get(step)
    if isinstance(state, list | tuple) and type(step) is int and -len(state) <= step < len(state):
        return state[step]
    return None


def _place(key: Any) -> tuple[Any, ...]:
    kind = _KINDS.get(type(key))
    return (3, repr(key)) if kind is None else (kind, key)
