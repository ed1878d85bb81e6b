"""A batch of one side of a join: looked at before it is routed, and taken behind that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from onyx.flow.arrays import Indices
from onyx.flow.batch import Batch, Segments, as_dicts
from onyx.joins.streams.looked import Looked
from onyx.joins.streams.spans import LEFT, RIGHT, Side
from onyx.keystate.coded import chosen, keyed, shards_in
from onyx.ledger.applied import Mask
from onyx.program.batch_work import BatchWork
from onyx.program.firing import carry_out
from onyx.program.folding import Emitting, emit_late
from onyx.program.prepare import look_at_leaves
from onyx.program.program import Program
from onyx.program.stream_join import StreamJoin
from onyx.program.streams.looking import look_at
from onyx.program.streams.results import apart, gathered
from onyx.program.streams.state import JoinedStreams
from onyx.runs import Numbers, taken
from onyx.telemetry.catalog import LATE_SEGMENTS


class Joining(Emitting, Protocol):
    """The state of a join while a batch is worked on. On a peer `task.state.keeper.StateKeeper`."""

    @property
    def joined(self) -> JoinedStreams:
        """What is stored of both sides."""
        ...

    @property
    def shard_of(self) -> Mapping[Any, int]:
        """The shard of a group key."""
        ...

    def emit_for(self, shard: int, segments: Segments, parents: Numbers) -> None:
        """Send these when that is safe. `parents`: the root of the tree that each was made of."""
        ...

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """Which segments have not been applied yet; from now on they are. None: all of them."""
        ...

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """By the task's uniqueness key: for each segment, with its shard, whether it is new."""
        ...


def look(join: StreamJoin, work: BatchWork) -> None:
    """Look at the leaves of a batch; those that cannot be looked at are refused."""
    if work.leaves is not None:
        side = join.sides[_side(join, work)]
        leaves = work.leaves
        work.looked = look_at_leaves(leaves, leaves.segments, partial(look_at, join, side))


def join_batch(program: Program, joining: Joining, work: BatchWork) -> None:
    """Segments that are fresh meet those of the other side."""
    join, batch, leaves, routed = program.streams, work.batch, work.leaves, work.routed
    if join is None or batch is None or leaves is None:
        return
    assert routed is not None, "the phase before"
    side, looked, segments = _side(join, work), work.looked, leaves.segments
    groups = chosen(work.groups, leaves.parents)
    origin = np.arange(len(leaves)) if leaves.parents is None else leaves.parents
    fresh = joining.fresh(batch, routed.withdrawn)
    if fresh is not None:
        where = np.flatnonzero(fresh if leaves.parents is None else fresh[leaves.parents])
        segments, groups, looked = chosen(segments, where), chosen(groups, where), None
        origin = origin[where]
    if not len(segments):
        return
    looked = look_at(join, join.sides[side], segments) if looked is None else looked
    shards = shards_in(joining.shard_of, keyed(segments, groups))
    if looked.unique is not None:
        values = [[side, value] for value in looked.unique]
        new = joining.first_seen(shards.tolist(), values)
        where = np.flatnonzero(new)
        segments, shards, origin = chosen(segments, where), shards[where], origin[where]
        looked = look_at(join, join.sides[side], segments)
    if len(segments):
        roots = None if batch.roots is None else taken(batch.roots, origin)
        _add(program, joining, side, segments, looked, shards, roots)


def _add(
    program: Program,
    joining: Joining,
    side: Side,
    segments: Segments,
    looked: Looked,
    shards: Indices,
    roots: Numbers | None,
) -> None:
    assert program.streams is not None, "asked before"
    added = joining.joined.add(side, segments, looked.times, looked.rows, shards)
    joining.changed(len(segments))
    if program.streams.tells_apart and roots is not None:
        for shard, made, of in apart(added.made, shards):
            if shard not in joining.closed:
                joining.emit_for(shard, made, taken(roots, of))
    else:
        carry_out(joining, gathered(int(shards[0]), added.made))
    if added.late:
        program.metrics.add(LATE_SEGMENTS, len(added.late))
        where = np.array(added.late, np.intp)
        late = as_dicts(chosen(segments, where))
        emit_late(joining, program.streams.late_to, late, shards[where].tolist())


def _side(join: StreamJoin, work: BatchWork) -> Side:
    assert work.batch is not None, "asked before"
    assert work.batch.upstream is not None, "a join knows who has sent a batch"
    return RIGHT if join.by_task[work.batch.upstream] else LEFT
