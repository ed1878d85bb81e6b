"""What questions see of a join: the rows of both sides that are of use, by key and time.

Rows of one key and time are one extent: they have no names that stay, so no page could begin
between them. All rows that may be meant are decoded, some at a time, to know their keys; if one key
is asked for, only rows with its hash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from onyx.errors import UserError
from onyx.flow.arrays import Mask
from onyx.flow.batch import Segment, as_dicts
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.flow.groups.keys import combined_hashes
from onyx.joins.keys import apart
from onyx.keystate.answers import FirstPlaces
from onyx.keystate.extents import ALL, Extent, Number
from onyx.keystate.groups import group_value, hashable_key
from onyx.keystate.selection import Selection, place
from onyx.operators.stream_join.definition import StreamJoin
from onyx.operators.stream_join.keyed_rows import KeyedRows
from onyx.operators.stream_join.spans import END, LEFT, NO_WATERMARK, RIGHT, US_A_MS, Side
from onyx.operators.stream_join.stored_form import segments_of

ROWS_AT_ONCE = 16_384
Stored = tuple[Side, KeyedRows, Callable[[KeyedRows], Mask]]
"""Rows of a side, with what says which of them nobody needs."""


class _Row(NamedTuple):
    group: Any
    time: Number
    """In milliseconds."""
    side: Side
    segment: Segment


def extents_of(
    join: StreamJoin, stored: Sequence[Stored], asked: Selection, extents_max: int | None
) -> list[Extent]:
    """An extent for each key and time that is asked for, the first in order."""
    firsts = FirstPlaces[_Row](extents_max)
    behind = None if asked.after is None else asked.after.order
    for side, rows, gone in stored:
        for row in _meant(join, side, rows, ~gone(rows), asked):
            order = place(row.group, row.time, row.time, ()).order
            if behind is None or order > behind:
                firsts.add(order, row)
    return [_extent(rows) for rows in firsts.in_order()]


def _extent(rows: Sequence[_Row]) -> Extent:
    group, time, _, _ = rows[0]
    left, right = ([each.segment for each in rows if each.side == side] for side in (LEFT, RIGHT))
    return Extent(group, time, time, {"left": left, "right": right})


def _meant(
    join: StreamJoin, side: Side, rows: KeyedRows, there: Mask, asked: Selection
) -> Iterator[_Row]:
    """The rows of a part that are asked for, of those that are there."""
    if asked.time_from is not None:
        there &= rows.times >= _microseconds(asked.time_from)
    if asked.time_to is not None:
        there &= rows.times < _microseconds(asked.time_to)
    if asked.key is not ALL:
        there &= _may_have(rows, _parts(join, asked.key))
    wanted = ALL if asked.key is ALL else hashable_key(asked.key)
    chosen = np.flatnonzero(there)
    for start in range(0, len(chosen), ROWS_AT_ONCE):
        some = chosen[start : start + ROWS_AT_ONCE]
        segments = as_dicts(segments_of(rows.chosen(some)))
        for time, segment in zip(rows.times[some].tolist(), segments, strict=True):
            key = hashable_key(_group(join, side, segment))
            group = group_value(key)
            if asked.has_group(group) if wanted is ALL else key == wanted:
                yield _Row(group, _milliseconds(time), side, segment)


def _microseconds(bound: Number) -> int:
    """The first time that is not before a bound."""
    return math.ceil(min(max(bound * US_A_MS, NO_WATERMARK), END))


def _milliseconds(time: int) -> Number:
    return time / US_A_MS if time % US_A_MS else time // US_A_MS


def _group(join: StreamJoin, side: Side, segment: Segment) -> Any:
    """The key of a segment: of several parts an object with the names of the left side."""
    names, values = join.sides[LEFT].keys, [segment[each] for each in join.sides[side].keys]
    return values[0] if len(names) == 1 else dict(zip(names, values, strict=True))


def _parts(join: StreamJoin, group: Any) -> list[Any]:
    """The values of the key of a group."""
    names = join.sides[LEFT].keys
    return [group] if len(names) == 1 else [group[each] for each in names]


def _may_have(rows: KeyedRows, parts: Sequence[Any]) -> Mask:
    """Which rows have the hash of a key."""
    try:
        keys = [apart(to_array([each])) for each in parts]
    except (UserError, *MISMATCH):
        return np.zeros(len(rows), np.bool_)  # no row has such a key
    if any(each.null_count for each in keys):
        return np.zeros(len(rows), np.bool_)
    found: Mask = rows.hashes == combined_hashes(keys)[0]
    return found
