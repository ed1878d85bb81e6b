"""Segments change the state of their windows: groups, what windows need, and what is fresh."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import compress
from operator import itemgetter
from typing import Any

from onyx.flow.batch import Batch, Segment, as_dicts
from onyx.flow.key_getters import naming
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.flow.segment_failure import one_by_one
from onyx.task.parts import Allocation, Program, Windowed, Work
from onyx.task.phases.table import ADVANCED, Answer
from onyx.task.windowed.fire import carry_out
from onyx.task.windowed.state import Windowing
from onyx.telemetry.catalog import LATE_SEGMENTS
from onyx.telemetry.interface import TaskMetrics
from onyx.windows.groups import hashable_keys
from onyx.windows.prepared import Prepared
from onyx.windows.prepared import prepare as prepare_batch


def read_groups(program: Program, batch: Batch) -> list[Any] | None:
    """The groups of a batch, before the function may change what it is given; None without."""
    its = program.windowed
    if its is None or its.group_key is None:
        return None
    with naming(program.entry):
        return hashable_keys(its.group_key.of_all(as_dicts(batch.segments)))


def prepare(program: Program, leaves: Leaves) -> Prepared | None:
    """What windows need of the leaves of a batch. None if windows refuse some of them: these are
    in `refusals` then."""
    its = program.windowed
    assert its is not None, "asked before"
    segments = _own_segments(program, leaves)
    try:
        return _prepared(its, segments)
    except Exception:
        parents = range(len(segments)) if leaves.parents is None else leaves.parents.tolist()
        refused: dict[int, Exception] = {}
        for index, error in one_by_one(partial(_prepared, its), segments):
            refused.setdefault(parents[index], error)
        leaves.refusals = sorted(refused.items(), key=itemgetter(0))
        return None


def assign_windows(program: Program, allocation: Allocation, work: Work) -> Answer:
    """Segments that were not applied before change the state of their windows. What fires is
    carried out, though nothing of it is sent before it is durable."""
    its, windowing = program.windowed, allocation.windowing
    batch, leaves, routed = work.batch, work.leaves, work.routed
    if its is None or windowing is None or batch is None or leaves is None:
        return ADVANCED
    assert routed is not None, "the phase before"
    with windowing.calls.failures():
        chosen, groups = _fresh(program, its, windowing, work, batch, leaves, routed)
        if chosen.segments:
            _add(its, windowing, chosen, groups, program.metrics)
    return ADVANCED


def _fresh(
    program: Program,
    its: Windowed,
    windowing: Windowing,
    work: Work,
    batch: Batch,
    leaves: Leaves,
    routed: Routed,
) -> tuple[Prepared, list[Any] | None]:
    """Leaves of segments that have not been applied, each with its group."""
    prepared, groups = work.prepared, work.groups
    fresh = windowing.fresh(batch, routed.withdrawn)
    if leaves.parents is not None:
        parents = leaves.parents.tolist()
        groups = None if groups is None else [groups[parent] for parent in parents]
        fresh = None if fresh is None else [fresh[parent] for parent in parents]
    if fresh is not None:
        segments = _own_segments(program, leaves) if prepared is None else prepared.segments
        prepared = _prepared(its, list(compress(segments, fresh)))
        groups = None if groups is None else list(compress(groups, fresh))
    assert prepared is not None, "what windows refuse is withdrawn"
    if prepared.unique is not None and prepared.segments:
        shards = _shards(windowing, groups, len(prepared.segments))
        new = windowing.first_seen(shards, prepared.unique)
        if not all(new):
            prepared = _prepared(its, list(compress(prepared.segments, new)))
            groups = None if groups is None else list(compress(groups, new))
    return prepared, groups


def _add(
    its: Windowed,
    windowing: Windowing,
    prepared: Prepared,
    groups: list[Any] | None,
    metrics: TaskMetrics,
) -> None:
    segments = prepared.segments
    added = windowing.windows.add(segments, groups, windowing.clock.wall_ms(), prepared.taken)
    windowing.changed(len(segments))
    carry_out(windowing, added.firings)
    if not added.late:
        return
    metrics.add(LATE_SEGMENTS, len(added.late))
    mine = None if groups is None else [groups[index] for index in added.late]
    shards = _shards(windowing, mine, len(added.late))
    for child in its.late_to:
        for index, shard in zip(added.late, shards, strict=True):
            windowing.emit(shard, [segments[index]], child)


def _own_segments(program: Program, leaves: Leaves) -> list[Segment]:
    """Copies where children get the segments too: they may change them, and a state may keep
    them."""
    shared = program.sends_to and program.entry.type == "function"
    segments = as_dicts(leaves.segments)
    return [dict(segment) for segment in segments] if shared else segments


def _prepared(its: Windowed, segments: Sequence[Segment]) -> Prepared:
    return prepare_batch(its.compiled, list(segments), its.unique_key)


def _shards(windowing: Windowing, groups: list[Any] | None, count: int) -> list[int]:
    """The shard of each of so many segments."""
    return [0] * count if groups is None else list(map(windowing.shard_of.__getitem__, groups))
