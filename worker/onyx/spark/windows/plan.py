"""The plan of a firing: what Spark is to aggregate, as a value.

The worker makes it of its files and passes it to the child as JSON. All files of a plan are rows or
results of earlier firings (*partials*); both become states of one form, which are merged by group
and extent. So a firing reads what is new and one state of what is old, as often as it comes.

A group key has three columns, of which a plan names those in use: ints and text have their own, so
that Spark groups by what users have; others are grouped by their canonical bytes, and so is the key
that keeps sessions apart within a group.

Sessions are no extents that are known by number: all are in one extent, and Spark finds them. A row
has its coordinate, a state the first and last coordinate of its session; both are merged when they
are near.
"""

from __future__ import annotations

from typing import Any

import msgspec

from onyx.base.structs import prepared
from onyx.model.kinds import Native

SHARD, EXTENT, LAST, SEQ = "shard", "extent", "last", "seq"
FRESH, FIRES, DUE = "fresh", "fires", "due"
COORDINATE, LOWER, UPPER = "coordinate", "lower", "upper"
KEY_INT, KEY_TEXT, KEY_OTHER, KEY_VALUE = "key_int", "key_text", "key_other", "key_value"
KEY_SESSION = "key_session"
INT, FLOAT, ITEM = "int", "float", "item"
COUNT, ITEMS = "count", "items"
OPTIONAL = (KEY_INT, KEY_TEXT, KEY_OTHER, KEY_SESSION, INT, FLOAT)
"""Columns that files have if they need them. `KEY_VALUE` goes with `KEY_OTHER`."""
Ranges = tuple[tuple[int, int], ...]
"""Numbers from and through, in order."""
AGGREGATE = "onyx.spark.windows.aggregate:aggregate"
"""What the child runs."""


@prepared
class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files of which the same is read."""

    paths: tuple[str, ...]
    partial: bool = False
    """Whether they are results of earlier firings."""
    emptied: bool = False
    """Whether only their groups count; of sessions, of those that have fired."""
    unfired: bool = False
    """Whether only what has not fired counts."""
    shards: tuple[int, ...] | None = None
    """None: all."""
    extents: Ranges | None = None
    """None: all."""


@prepared
class SessionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How sessions are found, and which of them fire."""

    gap: int
    """Coordinates that are not further apart are in one session."""
    delay: int = 0
    """A session is due at a watermark this far behind its last coordinate."""
    share: float | None = None
    """A session is due when a watermark has reached this share of it, instead."""
    watermark: int | float | None = None
    """The watermark: fire that are due at it, and have got rows since they fired last; None: all
    fire."""


@prepared
class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one run computes."""

    aggregation: str
    """Its name, for people."""
    native: Native
    columns: tuple[str, ...]
    """The columns of `OPTIONAL` that some file has."""
    pieces: tuple[Piece, ...]
    overlapping: bool = False
    """Whether a row may be in several extents."""
    tracked: bool = False
    """Whether it is noted which groups have got rows since a watermark made them fire."""
    settles: bool = False
    """Whether a watermark makes groups fire: those that have, and none waits afterwards."""
    sessions: SessionRule | None = None
    """None: extents are known by number."""
    extent: int | None = None
    """The only extent that the rows are in, which is no key then; None: there may be several."""
    sharded: bool = False
    """Whether the result says the shard of each group, as state does of which a peer may take over
    some shards. To carry it costs a sixth of an aggregation; of a key it is found again."""

    def params(self) -> dict[str, Any]:
        """The plan as arguments of `aggregate`."""
        return {"plan": msgspec.to_builtins(self)}

    @property
    def keys(self) -> list[str]:
        """Columns that rows are grouped by, besides the extent."""
        every = (KEY_INT, KEY_TEXT, KEY_OTHER, KEY_SESSION)
        return [key for key in every if key in self.columns]

    @property
    def numbers(self) -> list[str]:
        """Columns of values that are computed with."""
        return [each for each in (INT, FLOAT) if each in self.columns]

    def words(self) -> str:
        """For the log."""
        parts = [each for each in self.pieces if not each.partial]
        partials = [each for each in self.pieces if each.partial]
        by = ", ".join(["extent" if self.sessions is None else "session", *self.keys])
        return (
            f"{self.aggregation} by {by} of {sum(len(each.paths) for each in parts):,} parts with "
            f"{sum(len(each.paths) for each in partials):,} files of earlier results"
        )


def ranges(numbers: list[int]) -> Ranges:
    """Sorted numbers as ranges."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)
