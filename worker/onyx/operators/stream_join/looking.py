"""What a join looks at in a batch of one side: the times of segments, and their keys as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.arrays import Indices, Mask
from onyx.flow.batch import Segments, as_dicts, format_of
from onyx.flow.columns.values import MISMATCH
from onyx.flow.segment import Refusal
from onyx.joins.enrichment import values_of
from onyx.joins.keys import apart, beyond, kind_of
from onyx.operators.stream_join.definition import StreamJoin, StreamSide
from onyx.operators.stream_join.spans import TIME_MAX, Times
from onyx.windows.prepared import unique_values


class PreparedSide(msgspec.Struct, frozen=True):
    """The segments of a batch."""

    times: Times
    rows: Sequence[AlikeRows]
    """All segments, mostly together."""
    unique: Sequence[Any] | None
    """Values of the uniqueness key, if the task has one."""


class AlikeRows(msgspec.Struct, frozen=True):
    """Segments of a batch whose keys are of the same kind."""

    where: Indices
    """Their indices."""
    keys: tuple[pa.Array, ...]
    """A column for each part of the key; null: the key equals no other."""


def look_at(join: StreamJoin, side: StreamSide, segments: Segments) -> PreparedSide:
    """What the join needs of segments.

    Raises:
        Refusal: one of them has no time, or a key that cannot be compared.
    """
    rows = list(_rows(join, side, segments, np.arange(len(segments))))
    unique = (
        None if join.unique_key is None else unique_values(join.task, join.unique_key, segments)
    )
    return PreparedSide(_times(join, side, segments), rows, unique)


def _times(join: StreamJoin, side: StreamSide, segments: Segments) -> Times:
    try:
        found: Times = side.times.microseconds(segments)
    except OverflowError:
        found = np.full(len(segments), TIME_MAX)
    if len(found) and not -TIME_MAX < found.min() <= found.max() < TIME_MAX:
        raise Refusal(
            f"join {join.task}: at {side.times.key!r} holds a time farther from 1970 than 70,000 "
            "years"
        )
    return found


def _rows(
    join: StreamJoin, side: StreamSide, segments: Segments, where: Indices
) -> Iterator[AlikeRows]:
    """Segments whose keys fit into columns together; where they do not, by halves. Numbers that are
    text as keys are apart from those that are ints."""
    mine = segments if len(where) == len(segments) else format_of(segments).take(segments, where)
    try:
        columns = [values_of(mine, key) for key in side.keys]
        odd = next((mask for each in columns if (mask := _some_beyond(each)) is not None), None)
        if odd is None:
            yield AlikeRows(where, tuple(_comparable(apart(each)) for each in columns))
            return
        parts = [where[odd], where[~odd]]
    except (UserError, *MISMATCH) as error:
        if len(where) <= 1:
            raise Refusal(f"join {join.task}: key {side.keys}: {error}") from error
        parts = _by_type(side, as_dicts(mine), where)
    for part in parts:
        yield from _rows(join, side, segments, part)


def _some_beyond(column: pa.Array) -> Mask | None:
    """Which numbers are text as keys; None: all of those that are keys, or none."""
    others = beyond(column) if kind_of(column.type) == "number" else None
    if others is None:
        return None
    mask: Mask = others.is_valid().to_numpy(zero_copy_only=False)
    return mask if mask.any() and not mask.all() else None


def _by_type(side: StreamSide, segments: Sequence[dict[str, Any]], where: Indices) -> list[Indices]:
    """Segments apart by the types of their keys; if all have the same, each alone."""
    found: dict[tuple[type, ...], list[int]] = {}
    for at, segment in zip(where.tolist(), segments, strict=True):
        found.setdefault(tuple(type(segment.get(key)) for key in side.keys), []).append(at)
    parts = found.values() if len(found) > 1 else [[at] for at in where.tolist()]
    return [np.array(part) for part in parts]


def _comparable(column: pa.Array) -> pa.Array:
    """Null of no type equals nothing, as null of any does."""
    if kinds.is_null(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.string()) if kinds.is_large_string(column.type) else column
