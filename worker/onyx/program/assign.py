"""Segments change the state of their windows: groups, what windows need, and what is fresh."""

from __future__ import annotations

from functools import partial
from operator import itemgetter

import numpy as np

from onyx.flow.batch import Batch, FoundKeys, Segment, Segments, as_dicts, copies_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.formats import format_of
from onyx.flow.groups.codes import KeyCodes, KeyList
from onyx.flow.groups.getters import KeyGetter, naming
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.program.batch_work import BatchWork
from onyx.program.firing import carry_out
from onyx.program.folding import Folding
from onyx.program.program import Program
from onyx.program.windows import Windowed
from onyx.telemetry.catalog import LATE_SEGMENTS
from onyx.telemetry.interface import TaskMetrics
from onyx.windows.coded import GroupKeys, Groups, Keyed, chosen, keyed
from onyx.windows.groups import hashable_keys
from onyx.windows.prepared import Prepared
from onyx.windows.prepared import prepare as prepare_batch


def read_groups(program: Program, batch: Batch) -> Keyed | None:
    """The groups of a batch, before the function may change what it is given; None without."""
    its = program.windowed
    if its is None or its.group_key is None:
        return None
    segments = batch.segments
    known = None if program.lifecycles.hooks else batch.keys  # hooks may have changed segments
    with naming(program.entry):
        read = format_of(segments).choose(_groups_of_dicts, _groups_of_columns)
        return read(segments, its.group_key, its.group_keys, known)


def _groups_of_dicts(
    segments: list[Segment], key: KeyGetter, _: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return hashable_keys(known.raws if isinstance(known, KeyList) else key.of_all(segments))


def _groups_of_columns(
    columns: Columns, key: KeyGetter, keys: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return keys.of(known if isinstance(known, KeyCodes) else key.of_columns(columns))


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
        for index, error in format_of(segments).bad(segments, partial(_prepared, its)):
            refused.setdefault(parents[index], error)
        leaves.refusals = sorted(refused.items(), key=itemgetter(0))
        return None


def assign(program: Program, windowing: Folding, work: BatchWork) -> None:
    """Assigns for a batch that has been routed, whoever keeps the state."""
    its = program.windowed
    batch, leaves, routed = work.batch, work.leaves, work.routed
    if its is None or batch is None or leaves is None:
        return
    assert routed is not None, "the phase before"
    with windowing.calls.failures():
        fresh, groups = _fresh(program, its, windowing, work, batch, leaves, routed)
        if len(fresh.segments):
            _add(its, windowing, fresh, groups, program.metrics)


def _fresh(
    program: Program,
    its: Windowed,
    windowing: Folding,
    work: BatchWork,
    batch: Batch,
    leaves: Leaves,
    routed: Routed,
) -> tuple[Prepared, Keyed]:
    """Leaves of segments that have not been applied, each with its group."""
    prepared, fresh = work.prepared, windowing.fresh(batch, routed.withdrawn)
    groups = chosen(work.groups, leaves.parents)
    if fresh is not None:
        segments = _own_segments(program, leaves) if prepared is None else prepared.segments
        where = np.flatnonzero(fresh if leaves.parents is None else fresh[leaves.parents])
        prepared, groups = _prepared(its, chosen(segments, where)), chosen(groups, where)
    assert prepared is not None, "what windows refuse is withdrawn"
    keys = keyed(prepared.segments, groups)
    if prepared.unique is not None and len(prepared.segments):
        new = windowing.first_seen(_shards(its, windowing, keys), prepared.unique)
        if not all(new):
            where = np.flatnonzero(new)
            prepared, keys = _prepared(its, chosen(prepared.segments, where)), chosen(keys, where)
    return prepared, keys


def _add(
    its: Windowed,
    windowing: Folding,
    prepared: Prepared,
    groups: Keyed,
    metrics: TaskMetrics,
) -> None:
    segments = prepared.segments
    added = windowing.windows.add(segments, groups, windowing.clock.wall_ms(), prepared.taken)
    windowing.changed(len(segments))
    carry_out(windowing, added.firings)
    if not added.late:
        return
    metrics.add(LATE_SEGMENTS, len(added.late))
    where = np.array(added.late, np.intp)
    shards = _shards(its, windowing, chosen(groups, where))
    late = as_dicts(chosen(segments, where))
    for child in its.late_to:
        for segment, shard in zip(late, shards, strict=True):
            windowing.emit(shard, [segment], child)


def _own_segments(program: Program, leaves: Leaves) -> Segments:
    """Copies of dicts where children get the segments too: they may change them, and a state may
    keep them."""
    shared = program.sends_to and program.entry.type == "function"
    return copies_of(leaves.segments) if shared else leaves.segments


def _prepared(its: Windowed, segments: Segments) -> Prepared:
    return prepare_batch(its.compiled, segments, its.unique_key)


def _shards(its: Windowed, windowing: Folding, groups: Keyed) -> list[int]:
    """The shard of each segment."""
    if its.group_key is None:
        return [0] * len(groups)
    shard_of = windowing.shard_of.__getitem__
    if not isinstance(groups, Groups):
        return list(map(shard_of, groups))
    shards = np.fromiter(map(shard_of, groups.keys), np.intp, len(groups.keys))
    found: list[int] = shards[groups.codes].tolist()
    return found
