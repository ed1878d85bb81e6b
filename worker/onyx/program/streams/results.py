"""What a join makes of two rows that meet, or of one that has met none."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.batch import Segment, Segments, as_dicts, joined
from onyx.flow.columns.record_batch import Columns
from onyx.joins.streams.spans import LEFT, Side
from onyx.program.stream_join import StreamJoin
from onyx.program.streams.stored_form import is_dicts, segments_of


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

    def of_pairs(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Segments:
        """A segment for each row of both, which have as many."""
        if is_dicts(left) or is_dicts(right):
            sides = (as_dicts(segments_of(left)), as_dicts(segments_of(right)))
            mine, others = map(self._named_dicts, (0, 1), sides)
            return [{**each, **other, **each} for each, other in zip(mine, others, strict=True)]
        found = {**self._named(1, right), **self._named(0, left)}
        order = [*self._named(0, left), *self._named(1, right)]
        return _columns({name: found[name] for name in order})

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

    def _named_dicts(self, side: int, segments: Sequence[Segment]) -> list[Segment]:
        prefix = self._prefixes[side]
        if not prefix:
            return list(segments)
        return [{prefix + key: value for key, value in each.items()} for each in segments]

    def _named(self, side: int, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        prefix = self._prefixes[side]
        names = (prefix + name for name in rows.schema.names)
        return dict(zip(names, rows.columns, strict=True))


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
