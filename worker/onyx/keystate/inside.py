"""Which part of a state a question is about: a path into its maps and lists, and a range of items.

Where the state is, only what is asked for is taken out of it, so a map of a million items is looked
at in pages. What is not there is None: an extent has its place in pages, whatever is in
it.

Rejected: a language of paths, with filters and wildcards, as databases have. A trigger or function
can emit what needs one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.errors import UserError
from onyx.keystate.entries import Entries, Step, in_order
from onyx.keystate.extents import Extent

_STEPS = (int, str, bytes)


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
        if self == WHOLE and not any(isinstance(each.state, Entries) for each in extents):
            return extents
        return [replace(each, state=self._part(each.state)) for each in extents]

    def _part(self, state: Any) -> Any:
        for step in self.path:
            state = _item(state, step)
        if (self.first, self.end, self.items_max) == (None, None, None):
            return dict(in_order(state)) if isinstance(state, Entries) else state
        if isinstance(state, Mapping):
            return dict(in_order(state, self.first, self.end, self.items_max))
        if isinstance(state, list | tuple):
            return self._slice(state)
        return None

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
