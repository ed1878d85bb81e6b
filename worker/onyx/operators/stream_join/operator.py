"""A join of two streams: a batch of one side is looked at before it is routed, and taken behind
that."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from onyx.base.runs import Numbers, taken
from onyx.flow.arrays import Indices
from onyx.flow.batch import Segments, as_dicts
from onyx.keystate.coded import chosen, keyed, shards_in
from onyx.operators.context import OperatorContext
from onyx.operators.stream_join.definition import StreamJoin
from onyx.operators.stream_join.looking import Looked, look_at
from onyx.operators.stream_join.operator import JoinedStreams
from onyx.operators.stream_join.results import apart, gathered
from onyx.operators.stream_join.spans import LEFT, RIGHT, Side
from onyx.program.apply import look_at_leaves
from onyx.program.batch_work import BatchWork
from onyx.program.operator import carry_out, emit_late
from onyx.telemetry.catalog import LATE_SEGMENTS


class StreamJoinOperator(JoinedStreams):
    """A join of two streams."""

    def look(self, work: BatchWork) -> None:
        """Look at the leaves of a batch; those that cannot be looked at are refused."""
        leaves = work.leaves
        if leaves is not None:
            side = self.its.sides[self._side(work)]
            work.seen = look_at_leaves(leaves, leaves.segments, partial(look_at, self.its, side))

    def change(self, work: BatchWork) -> None:
        """Segments that are fresh meet those of the other side."""
        with self.failures():
            self._join(work)

    def saw(self, parent: str, schema: pa.Schema) -> None:
        """Segments of a side have these columns, wherever they have gone."""
        self.saw_side(self._side_of(parent), schema)

    def _join(self, work: BatchWork) -> None:
        join, batch, leaves, routed = self.its, work.batch, work.leaves, work.routed
        if batch is None or leaves is None:
            return
        assert routed is not None, "the phase before"
        side, segments = self._side(work), leaves.segments
        looked: Looked | None = work.seen
        groups = chosen(work.groups, leaves.parents)
        origin = np.arange(len(leaves)) if leaves.parents is None else leaves.parents
        fresh = self.keeper.fresh(batch, routed.withdrawn)
        if fresh is not None:
            where = np.flatnonzero(fresh if leaves.parents is None else fresh[leaves.parents])
            segments, groups, looked = chosen(segments, where), chosen(groups, where), None
            origin = origin[where]
        if not len(segments):
            return
        looked = look_at(join, join.sides[side], segments) if looked is None else looked
        shards = shards_in(self.keeper.shard_of, keyed(segments, groups))
        if looked.unique is not None:
            values = [[side, value] for value in looked.unique]
            new = self.keeper.first_seen(shards.tolist(), values)
            where = np.flatnonzero(new)
            segments, shards, origin = chosen(segments, where), shards[where], origin[where]
            looked = look_at(join, join.sides[side], segments)
        if len(segments):
            roots = None if batch.roots is None else taken(batch.roots, origin)
            self._add(side, segments, looked, shards, roots)

    def _add(
        self, side: Side, segments: Segments, looked: Looked, shards: Indices, roots: Numbers | None
    ) -> None:
        keeper = self.keeper
        added = self.add(side, segments, looked.times, looked.rows, shards)
        keeper.changed(len(segments))
        if self.its.tells_apart and roots is not None:
            for shard, made, of in apart(added.made, shards):
                if shard not in keeper.closed:
                    keeper.emit_for(shard, made, taken(roots, of))
        else:
            carry_out(keeper, gathered(int(shards[0]), added.made))
        if added.late:
            self.program.metrics.add(LATE_SEGMENTS, len(added.late))
            where = np.array(added.late, np.intp)
            late = as_dicts(chosen(segments, where))
            emit_late(keeper, self.its.late_to, late, shards[where].tolist())

    def _side(self, work: BatchWork) -> Side:
        assert work.batch is not None, "asked before"
        assert work.batch.upstream is not None, "a join knows who has sent a batch"
        return self._side_of(work.batch.upstream)

    def _side_of(self, parent: str) -> Side:
        return RIGHT if self.its.by_task[parent] else LEFT


def join_operator(its: StreamJoin, context: OperatorContext) -> StreamJoinOperator:
    """The join, with no rows in it."""
    keep = None if context.keep_rows is None else context.keep_rows()
    memory_rows_max = context.memory_rows_max
    return StreamJoinOperator(its, context.shards, context.page_max, keep, memory_rows_max)
