"""Questions about state and their answers: which extents, which part of each, which come first.

A selection is by group, by part of a group, by range, by page. Groups are in the order of answers:
ints by value, then text, then all others in an order of no meaning. So a range is of ints or of
text. A page begins behind the *place* of the last extent of the page before: its group, its bounds,
and the session key; of a map that comes in parts the last key that was given as well. The upper
bound of a session is not in its place, so that one that has grown meanwhile does not come twice.

The part of a state that a question is about is a path into its maps and lists, and a range of items
(`Inside`). Where the state is, only what is asked for is taken out of it, so a map of a million
items is looked at in pages. What is not there is None: an extent has its place in pages, whatever
is in it. Rejected: a language of paths, with filters and wildcards, as databases have. A trigger or
function can emit what needs one.

Each peer answers with its first extents, so the first of all are among them. A peer may have to
stop early because its states are large: then nothing behind the last one that it gave is known
completely, and the whole answer ends there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from onyx.errors import UserError
from onyx.flow.groups.keys import key_bytes
from onyx.keystate.entries import Entries, Step, in_order, place_of_key
from onyx.keystate.extents import ALL, Extent, Number

_STEPS = (int, str, bytes)


PREFIXES = (str, list, tuple, dict)
"""Types of groups that have parts."""
BOUNDS = (int, str)
"""Types of groups that have an order."""
Order = tuple[Any, ...]
"""Where a place is (`Place.order`)."""
What = TypeVar("What")


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


class Place(NamedTuple):
    """Where an extent is in the order of answers."""

    group: Any
    lower: Number
    upper: Number
    """0 of a session."""
    of_session: tuple[Any, ...] = ()
    item: Step | None = None
    """The last key of a part of a map."""

    @property
    def order(self) -> tuple[Any, ...]:
        """Smaller for what comes first, and different for each extent of a window."""
        found = order_of(*self[:4])
        return found if self.item is None else (*found, place_of_key(self.item))


def order_of(
    group: Any, lower: Number, upper: Number, of_session: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The order of what is known by these (`Place.order`)."""
    bounds = (lower, 0, *map(key_bytes, of_session)) if of_session else (lower, upper)
    if type(group) is str:
        return (1, group, *bounds)
    if type(group) is int:
        return (0, group, *bounds)
    return (2, key_bytes(group), *bounds)


def place(group: Any, lower: Number, upper: Number, of_session: tuple[Any, ...]) -> Place:
    """The place of what an extent is known by."""
    return Place(group, lower, 0 if of_session else upper, of_session)


def place_of(extent: Extent) -> Place:
    """The place of an extent."""
    found = place(extent.group, extent.lower, extent.upper, extent.of_session)
    return found._replace(item=extent.item)


class Selection(msgspec.Struct, frozen=True):
    """The extents for which all that is given holds."""

    key: Any = ALL
    """The one group, as the user's key or function gives it."""
    prefix: Any = None
    """The beginning of the group: of a text or a list; or some keys of a dict with their values."""
    key_from: int | str | None = None
    """The first group of a range."""
    key_to: int | str | None = None
    """The group before which the range ends."""
    time_from: Number | None = None
    """Extents end here or later, on the axis of the window."""
    time_to: Number | None = None
    """Extents begin before."""
    after: Place | None = None
    """Extents are behind this place."""
    inside: Inside = WHOLE
    """The part of each state that is shown."""

    def check(self) -> None:
        """Raises UserError when no group can be meant."""
        self.inside.check()
        given = [each for each in (self.key_from, self.key_to) if each is not None]
        if any(type(each) not in BOUNDS for each in given):
            raise UserError("a range of groups has whole numbers or texts as its bounds")
        if len(set(map(type, given))) > 1:
            raise UserError("a range of groups begins with a number and ends with a text")
        if self.prefix is not None and type(self.prefix) not in PREFIXES:
            raise UserError("the beginning of a group is a text, a list, or a dict of its keys")
        if (self.key is not ALL) + (self.prefix is not None) + bool(given) > 1:
            raise UserError("ask for one group, or for a beginning, or for a range of groups")

    @property
    def by_group(self) -> bool:
        """Whether groups matter."""
        return self.key is not ALL or self.prefix is not None or self._in_range

    @property
    def _in_range(self) -> bool:
        return self.key_from is not None or self.key_to is not None

    def has_extent(self, lower: Number, upper: Number) -> bool:
        """Whether extents with these bounds are meant."""
        if self.time_from is not None and upper < self.time_from:
            return False
        return self.time_to is None or lower < self.time_to

    def has_group(self, group: Any) -> bool:
        """Whether a group is meant, which is not asked of `key`."""
        if self.prefix is not None:
            return begins_with(group, self.prefix)
        return not self._in_range or self._has_in_range(group)

    def _has_in_range(self, group: Any) -> bool:
        first: Any = self.key_from
        end: Any = self.key_to
        if type(group) is not type(end if first is None else first):
            return False
        return bool((first is None or group >= first) and (end is None or group < end))


EVERYTHING = Selection()


def begins_with(group: Any, prefix: Any) -> bool:
    """Whether a group begins with a text or list, or has the keys and values of a dict. Numbers and
    texts in it are told apart as groups are: 1 is not True."""
    if type(prefix) is str:
        return type(group) is str and group.startswith(prefix)
    if type(prefix) is dict:
        return type(group) is dict and all(
            name in group and _same(group[name], value) for name, value in prefix.items()
        )
    if type(group) not in (list, tuple) or len(group) < len(prefix):
        return False
    return all(map(_same, group, prefix))


def _same(one: Any, other: Any) -> bool:
    return key_bytes(one) == key_bytes(other)


class Answer(msgspec.Struct, frozen=True):
    """Extents in the order of their places (`selection`)."""

    extents: Sequence[Extent]
    more: bool
    """There are others, which come behind these."""

    @classmethod
    def of(cls, found: Sequence[Extent], extents_max: int) -> Answer:
        """The first of what was found for one more."""
        return cls(found[:extents_max], are_more(found, extents_max))


def are_more(found: Sequence[Extent], given: int) -> bool:
    """Whether the first so many are not all there are."""
    return given < len(found) or bool(found and found[-1].item is not None)


def merge(answers: Iterable[Answer], extents_max: int) -> Answer:
    """The first extents of all peers."""
    answers = list(answers)
    ends = [_order(each.extents[-1]) for each in answers if each.more and each.extents]
    extents = sorted((extent for each in answers for extent in each.extents), key=_order)
    if ends:
        end = min(ends)
        extents = [extent for extent in extents if _order(extent) <= end]
    more = any(each.more for each in answers) or len(extents) > extents_max
    return Answer(extents[:extents_max], more)


class FirstPlaces(Generic[What]):
    """Gathers what lies at places, and forgets what is not at one of the first."""

    def __init__(self, places_max: int | None) -> None:
        """`places_max`: so many are wanted; None: all."""
        self._max = places_max
        self._found: dict[Order, list[What]] = {}
        self._end: Order | None = None
        """Nothing behind it is among the first."""

    def add(self, order: Order, what: What) -> None:
        """One more, at a place."""
        if self._end is not None and order > self._end:
            return
        self._found.setdefault(order, []).append(what)
        if self._max is not None and len(self._found) > 2 * self._max:
            self._cut(self._max)

    def in_order(self) -> list[list[What]]:
        """What lies at each of the first places, in the order in which it came."""
        if self._max is not None:
            self._cut(self._max)
        return [self._found[order] for order in sorted(self._found)]

    def _cut(self, places_max: int) -> None:
        for order in sorted(self._found)[places_max:]:
            del self._found[order]
        if len(self._found) == places_max:
            self._end = max(self._found, default=None)


def _order(extent: Extent) -> Order:
    return place_of(extent).order
