"""Which extents of a window a question is about: by group, by part of a group, by range, by page.

Groups are in the order of answers: ints by value, then text, then all others in an order of no
meaning. So a range is of ints or of text. A page begins behind the *place* of the last extent of
the page before: its group, its bounds, and the session key; of a map that comes in parts the last
key that was given as well. The upper bound of a session is not in
its place, so that one that has grown meanwhile does not come twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from onyx.errors import UserError
from onyx.flow.groups.keys import key_bytes
from onyx.keystate.entries import Step, place_of_key
from onyx.keystate.extents import ALL, Extent, Number
from onyx.keystate.inside import WHOLE, Inside

PREFIXES = (str, list, tuple, dict)
"""Types of groups that have parts."""
BOUNDS = (int, str)
"""Types of groups that have an order."""


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
