"""What a join makes of two rows that meet, or of one that has met none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.arrays import Indices
from onyx.flow.batch import Segment, Segments, as_dicts, joined
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.rows import alike, dicts_of
from onyx.joins.streams.spans import LEFT, Side
from onyx.program.stream_join import StreamJoin
from onyx.program.streams.stored_form import Stored, is_dicts, segments_of


class Chosen(NamedTuple):
    """Rows, and which of them are meant: in any order, and repeated."""

    stored: Stored
    where: Indices

    def taken(self) -> pa.RecordBatch:
        """The rows that are meant."""
        return self.stored.rows.take(pa.array(self.where))


class Results:
    """Makes the results of one join.

    Of a name that both sides have, the value of the left one stands. Columns of a row that has met
    none have nulls in the place of those that the other side is known to have; dicts lack the keys.
    """

    def __init__(self, join: StreamJoin) -> None:
        self._prefixes = [side.prefix for side in join.sides]
        self._known: list[pa.Schema | None] = [None, None]
        """The columns of each side, as they came last."""

    def saw(self, side: Side, rows: pa.RecordBatch) -> None:
        """A side has rows like these."""
        self._known[side] = None if is_dicts(rows) else rows.schema

    def of_pairs(self, left: Chosen, right: Chosen) -> Segments:
        """A segment for each row that is chosen of both, which are as many."""
        if left.stored.of_dicts or right.stored.of_dicts:
            return self._pairs(*_different(left), *_different(right))
        mine, others = self._named(0, left.taken()), self._named(1, right.taken())
        return _columns({**mine, **others, **mine})

    def of_lone(self, side: Side, rows: pa.RecordBatch) -> Segments:
        """A segment for each row of one side."""
        if is_dicts(rows):
            return self._named_dicts(side, as_dicts(segments_of(rows)))
        mine, other = self._named(side, rows), self._known[1 - side]
        nulls: dict[str, pa.Array] = {}
        if other is not None:
            prefix = self._prefixes[1 - side]
            nulls = {prefix + each.name: pa.nulls(len(rows), each.type) for each in other}
        first, second = (mine, nulls) if side == LEFT else (nulls, mine)
        return _columns({**first, **second, **mine})

    def _pairs(
        self, left: list[Segment], i: list[int], right: list[Segment], j: list[int]
    ) -> list[Segment]:
        """The dicts of pairs, of which the segments of both sides are at these indices."""
        mine, others = alike(left), alike(right)
        if mine is not None and others is not None:
            prefixes = zip(self._prefixes, (mine, others), strict=True)
            names = [prefix + name for prefix, rows in prefixes for name in rows.names]
            if len(set(names)) == len(names):
                rows, its = mine.rows, others.rows
                return dicts_of(names, [rows[a] + its[b] for a, b in zip(i, j, strict=True)])
        left, right = self._named_dicts(0, left), self._named_dicts(1, right)
        return [{**left[a], **right[b], **left[a]} for a, b in zip(i, j, strict=True)]

    def _named_dicts(self, side: int, segments: list[Segment]) -> list[Segment]:
        prefix = self._prefixes[side]
        if not prefix:
            return segments
        return [{prefix + key: value for key, value in each.items()} for each in segments]

    def _named(self, side: int, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        prefix = self._prefixes[side]
        names = (prefix + name for name in rows.schema.names)
        return dict(zip(names, rows.columns, strict=True))


def _different(chosen: Chosen) -> tuple[list[Segment], list[int]]:
    """The dicts of rows, each made once, and for each row which of them it is."""
    different, which = np.unique(chosen.where, return_inverse=True)
    return chosen.stored.dicts_at(different), which.tolist()


def _columns(arrays: dict[str, pa.Array]) -> Columns:
    return Columns(pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)))


def gathered(parts: Sequence[Segments]) -> list[Segments]:
    """Results as few batches."""
    some = [part for part in parts if len(part)]
    if not some:
        return []
    try:
        return [joined(some)]
    except UserError:  # types that do not fit together, or more than a batch can hold
        return some
