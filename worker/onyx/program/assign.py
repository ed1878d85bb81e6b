"""Segments that are fresh change the state of their windows."""

from __future__ import annotations

import numpy as np

from onyx.flow.batch import Batch, as_dicts
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.keystate.coded import Keyed, chosen, keyed, shards_in
from onyx.program.batch_work import BatchWork
from onyx.program.firing import carry_out
from onyx.program.folding import Folding, emit_late
from onyx.program.prepare import own_segments, prepared_for
from onyx.program.program import Program
from onyx.program.windows import Windowed
from onyx.telemetry.catalog import LATE_SEGMENTS
from onyx.telemetry.interface import TaskMetrics
from onyx.windows.prepared import Prepared


def assign(program: Program, keeper: Folding, work: BatchWork) -> None:
    """Assigns for a batch that has been routed, whoever keeps the state."""
    its = program.windowed
    batch, leaves, routed = work.batch, work.leaves, work.routed
    if its is None or batch is None or leaves is None:
        return
    assert routed is not None, "the phase before"
    with keeper.calls.failures():
        fresh, groups = _fresh(program, its, keeper, work, batch, leaves, routed)
        if len(fresh.segments):
            _add(its, keeper, fresh, groups, program.metrics)


def _fresh(
    program: Program,
    its: Windowed,
    keeper: Folding,
    work: BatchWork,
    batch: Batch,
    leaves: Leaves,
    routed: Routed,
) -> tuple[Prepared, Keyed]:
    """Leaves of segments that have not been applied, each with its group."""
    prepared, fresh = work.prepared, keeper.fresh(batch, routed.withdrawn)
    groups = chosen(work.groups, leaves.parents)
    if fresh is not None:
        segments = own_segments(program, leaves) if prepared is None else prepared.segments
        where = np.flatnonzero(fresh if leaves.parents is None else fresh[leaves.parents])
        prepared, groups = prepared_for(its, chosen(segments, where)), chosen(groups, where)
    assert prepared is not None, "what windows refuse is withdrawn"
    keys = keyed(prepared.segments, groups)
    if prepared.unique is not None and len(prepared.segments):
        new = keeper.first_seen(_shards(its, keeper, keys), prepared.unique)
        if not all(new):
            where = np.flatnonzero(new)
            keys = chosen(keys, where)
            prepared = prepared_for(its, chosen(prepared.segments, where))
    return prepared, keys


def _add(
    its: Windowed,
    keeper: Folding,
    prepared: Prepared,
    groups: Keyed,
    metrics: TaskMetrics,
) -> None:
    segments = prepared.segments
    added = keeper.windows.add(segments, groups, keeper.clock.wall_ms(), prepared.taken)
    keeper.changed(len(segments))
    carry_out(keeper, added.firings)
    if not added.late:
        return
    metrics.add(LATE_SEGMENTS, len(added.late))
    where = np.array(added.late, np.intp)
    shards = _shards(its, keeper, chosen(groups, where))
    emit_late(keeper, its.late_to, as_dicts(chosen(segments, where)), shards)


def _shards(its: Windowed, keeper: Folding, groups: Keyed) -> list[int]:
    """The shard of each segment."""
    if its.group_key is None:
        return [0] * len(groups)
    found: list[int] = shards_in(keeper.shard_of, groups).tolist()
    return found
