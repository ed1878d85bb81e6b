"""What a join makes of two rows that meet, or of one that has met none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onyx.codec.columns import ROWS_MAX
from onyx.codec.segment_runs import encode_run, merged, merged_batch, named
from onyx.errors import UserError
from onyx.flow.arrays import Indices
from onyx.flow.batch import Segment, Segments, as_dicts, joined, take
from onyx.flow.columns.record_batch import Columns
from onyx.keystate.pages import Emission, Page
from onyx.operators.stream_join.definition import StreamJoin
from onyx.operators.stream_join.keyed_rows import StoredSegments, is_dicts, segments_of
from onyx.operators.stream_join.spans import LEFT, Side

BATCH_BYTES_MAX = 1 << 30
"""Results are encoded together up to so many bytes: a column holds 2 GiB."""


class RowChoice(NamedTuple):
    """Rows, and which of them are meant: in any order, and repeated."""

    stored: StoredSegments
    where: Indices

    def taken(self) -> pa.RecordBatch:
        """The rows that are meant."""
        return self.stored.rows.take(pa.array(self.where))


class JoinResult(NamedTuple):
    """Results."""

    segments: Segments
    batch: pa.RecordBatch | None = None
    """Columns that stand for them in the state log (`merged_batch`)."""
    of: Indices | None = None
    """Which of the segments that have just come each was made of."""


class JoinResults:
    """Makes the results of one join.

    Of a name that both sides have, the value of the left one stands. Columns of a row that has met
    none have nulls in the place of those that the other side is known to have; dicts lack the keys.
    """

    def __init__(self, join: StreamJoin) -> None:
        left, right = join.sides
        self._prefixes = left.prefix, right.prefix
        self._known: list[pa.Schema | None] = [None, None]
        """The columns of each side, as they came last."""

    def saw(self, side: Side, schema: pa.Schema) -> None:
        """A side has rows of this schema."""
        self._known[side] = None if is_dicts(schema) else schema

    def of_pairs(self, left: RowChoice, right: RowChoice) -> JoinResult:
        """A segment for each row that is chosen of both, which are as many."""
        assert len(left.where) == len(right.where), "rows meet in pairs"
        if left.stored.of_dicts or right.stored.of_dicts:
            segments = merged(self._prefixes, *_different(left), *_different(right))
            both = left.stored.of_dicts and right.stored.of_dicts
            return JoinResult(segments, self._encoded(left, right) if both else None)
        mine, others = self._named(0, left.taken()), self._named(1, right.taken())
        return JoinResult(_columns({**mine, **others, **mine}))

    def _encoded(self, left: RowChoice, right: RowChoice) -> pa.RecordBatch | None:
        try:
            first, second = (side.taken().column(0) for side in (left, right))
        except pa.ArrowInvalid:  # more than a column can hold: the dicts are encoded one by one
            return None
        return merged_batch(self._prefixes, first, second)

    def of_lone(self, side: Side, rows: pa.RecordBatch) -> JoinResult:
        """A segment for each row of one side."""
        if is_dicts(rows.schema):
            return JoinResult(list(named(self._prefixes[side], as_dicts(segments_of(rows)))))
        mine, other = self._named(side, rows), self._known[1 - side]
        nulls: dict[str, pa.Array] = {}
        if other is not None:
            prefix = self._prefixes[1 - side]
            nulls = {prefix + each.name: pa.nulls(len(rows), each.type) for each in other}
        first, second = (mine, nulls) if side == LEFT else (nulls, mine)
        return JoinResult(_columns({**first, **second, **mine}))

    def _named(self, side: int, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        prefix = self._prefixes[side]
        names = (prefix + name for name in rows.schema.names)
        return dict(zip(names, rows.columns, strict=True))


def _different(chosen: RowChoice) -> tuple[list[Segment], list[int]]:
    """The dicts of rows, each made once, and for each row which of them it is."""
    different, which = np.unique(chosen.where, return_inverse=True)
    return chosen.stored.dicts_at(different), which.tolist()


def _columns(arrays: dict[str, pa.Array]) -> Columns:
    return Columns(pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)))


def by_shard(
    parts: Sequence[JoinResult], shards: Indices
) -> Iterator[tuple[int, Segments, Indices]]:
    """Results by the shard of the segment that has just come, with its index.

    Args:
        shards: of the segments that have just come.
    """
    for part in parts:
        assert part.of is not None, "made of segments that have just come"
        of_shard = shards[part.of]
        for shard in np.unique(of_shard).tolist():
            chosen = np.flatnonzero(of_shard == shard)
            yield shard, take(part.segments, chosen), part.of[chosen]


def gathered(shard: int, parts: Sequence[JoinResult]) -> Page:
    """Results as few batches, which a shard emits."""
    runs: list[list[JoinResult]] = []
    assert all(part.of is None or len(part.of) == len(part.segments) for part in parts), "of each"
    rows = ROWS_MAX
    for part in parts:
        if not len(part.segments):
            continue
        rows += len(part.segments)
        if rows > ROWS_MAX:
            runs, rows = [*runs, []], len(part.segments)
        runs[-1].append(part)
    return [each for run in runs for each in _emitted(shard, run)]


def _emitted(shard: int, parts: Sequence[JoinResult]) -> Page:
    try:
        segments = joined([part.segments for part in parts])
    except UserError:  # types that do not fit together, or more than a batch can hold
        return [Emission(shard, part.segments) for part in parts]
    batches = [part.batch for part in parts if part.batch is not None]
    if len(batches) < len(parts) or sum(each.nbytes for each in batches) > BATCH_BYTES_MAX:
        return [Emission(shard, segments)]
    return [Emission(shard, segments, encoded=encode_run(Columns(pa.concat_batches(batches))))]
