"""The phases of a windowed task: recovery, assigning segments to windows, event time, upkeep.

A task with windows is a source as well: it owns one partition a shard of its state, from which what
its triggers emit begins new trees. It ends when everything that feeds it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import compress
from operator import itemgetter
from typing import Any

from onyx.errors import describe
from onyx.flow.batch import Batch, Segment
from onyx.flow.failing import one_by_one
from onyx.flow.grouping import keys_of, naming, shard_of
from onyx.flow.leaves import Leaves
from onyx.state.local.spilled import holder
from onyx.state.recovery import Recovered
from onyx.task.failures.failure import Failure
from onyx.task.messages import Completions
from onyx.task.phases.table import Phase, Progress
from onyx.task.recovery.carry_over import inherit_windows, may_inherit
from onyx.task.recovery.state import recovered_state, shards_of_rank
from onyx.task.task import Task, Windowed
from onyx.task.windowed.emissions import Emissions
from onyx.task.windowed.end import end
from onyx.task.windowed.fire import carry_out, fire, next_page, told
from onyx.task.windowed.shards import first_partition, shards_of
from onyx.task.windowed.state import Windowing
from onyx.windows.groups import Shards, hashable_keys
from onyx.windows.prepared import Prepared
from onyx.windows.prepared import prepare as prepare_batch
from onyx.windows.task_windows import RUN_MAX, TaskWindows


def recover_state(task: Task) -> Progress:
    """Take over the shards of this peer; the job waits for it. Rank 0 numbers the partitions."""
    its = task.static.windowed
    if its is None or task.live.windowing is not None:
        return Progress.ADVANCED
    first = first_partition(task)
    if first is None and task.static.tracked:
        return Progress.WAITING
    if not may_inherit(task):
        return Progress.WAITING
    shards = shards_of_rank(task, shards_of(task))
    task.live.windowing = recovered_state(
        task,
        shards,
        inherit_windows(task),
        lambda recovered: _windowing(task, its, first, recovered),
    )
    return Progress.ADVANCED if task.live.windowing is not None else Progress.WAITING


def _windowing(task: Task, its: Windowed, first: int | None, recovered: Recovered) -> Windowing:
    """With the whole state, which takes its time; so not on a thread that tasks share."""
    services, static = task.services, task.static
    state = services.settings.state
    timeout_s = static.entry.pending_timeout / 1000
    of_group = _only_shard if its.group_key is None else shard_of
    return Windowing(
        TaskWindows(its.compiled, of_group, holder(state), min(RUN_MAX, state.firings_page_max)),
        Shards(of_group),
        Emissions(task.name, first, services.clock, timeout_s, task.back_off),
        recovered,
        static.job.guarantee == "exactly-once",
        services.background,
        services.clock,
        state,
    )


def _only_shard(_: Any) -> int:
    return 0


def read_groups(task: Task) -> None:
    """The groups of a batch, before the function may change what it is given."""
    batch, its = task.batch, task.static.windowed
    if batch is not None and its is not None and its.group_key is not None:
        keys = keys_of(its.group_key, batch.segments)
        with naming(task.static.entry):
            task.groups = hashable_keys(keys)


def prepare(task: Task, leaves: Leaves) -> None:
    """What windows need of the leaves of a batch; those that they refuse are in `refusals`."""
    its = task.static.windowed
    if its is None or task.live.windowing is None:
        return
    segments = _own_segments(task, leaves)
    try:
        task.prepared = _prepared(its, segments)
    except Exception:
        parents = range(len(segments)) if leaves.parents is None else leaves.parents.tolist()
        refused: dict[int, Exception] = {}
        for index, error in one_by_one(partial(_prepared, its), segments):
            refused.setdefault(parents[index], error)
        leaves.refusals = sorted(refused.items(), key=itemgetter(0))


def _own_segments(task: Task, leaves: Leaves) -> list[Segment]:
    """Children may change what they are given, and a state may keep it."""
    shared = task.static.sends_to and task.static.entry.type == "function"
    return [dict(segment) for segment in leaves.segments] if shared else leaves.segments


def _prepared(its: Windowed, segments: Sequence[Segment]) -> Prepared:
    return prepare_batch(its.compiled, list(segments), its.unique_key)


def assign_windows(task: Task) -> Progress:
    """Segments that were not applied before change the state of their windows; what fires is
    carried out, though nothing of it is sent before it is durable."""
    windowing, batch, leaves = task.live.windowing, task.batch, task.leaves
    its = task.static.windowed
    if its is None or windowing is None or batch is None or leaves is None:
        return Progress.ADVANCED
    with told(task):
        _assign(task, its, windowing, batch, leaves)
    return Progress.ADVANCED


def _assign(task: Task, its: Windowed, windowing: Windowing, batch: Batch, leaves: Leaves) -> None:
    assert task.routed is not None, "the phase before"
    prepared, groups = task.prepared, task.groups
    fresh = windowing.fresh(batch, task.routed.withdrawn)
    if leaves.parents is not None:
        parents = leaves.parents.tolist()
        groups = None if groups is None else [groups[parent] for parent in parents]
        fresh = None if fresh is None else [fresh[parent] for parent in parents]
    if fresh is not None:
        segments = _own_segments(task, leaves) if prepared is None else prepared.segments
        prepared = _prepared(its, list(compress(segments, fresh)))
        groups = None if groups is None else list(compress(groups, fresh))
    assert prepared is not None, "what windows refuse is withdrawn"
    if prepared.unique is not None and prepared.segments:
        shards = _shards(windowing, groups, len(prepared.segments))
        new = windowing.first_seen(shards, prepared.unique)
        if not all(new):
            prepared = _prepared(its, list(compress(prepared.segments, new)))
            groups = None if groups is None else list(compress(groups, new))
    segments = prepared.segments
    if not segments:
        return
    now_ms = task.services.clock.wall_ms()
    added = windowing.windows.add(segments, groups, now_ms, prepared.taken)
    windowing.changed(len(segments))
    carry_out(task, windowing, added.firings)
    if added.late:
        task.metrics.late(len(added.late))
        mine = None if groups is None else [groups[index] for index in added.late]
        shards = _shards(windowing, mine, len(added.late))
        for child in its.late_to:
            for index, shard in zip(added.late, shards, strict=True):
                windowing.emit(shard, [segments[index]], child)


def _shards(windowing: Windowing, groups: list[Any] | None, count: int) -> list[int]:
    """The shard of each of so many segments."""
    return [0] * count if groups is None else list(map(windowing.shard_of.__getitem__, groups))


def follow(task: Task) -> None:
    """Event time and epochs, as far as they have come: what they pass fires or is forgotten, and
    those downstream hear of a watermark when what it made fire has been sent."""
    windowing, event_time = task.live.windowing, task.live.event_time
    if task.live.committing is not None and event_time is not None:
        task.live.committing.forget(event_time.take_frontiers())
    if windowing is None or event_time is None:
        return
    watermark = event_time.watermark
    if watermark is not None and windowing.firing is None:
        fire(task, windowing, lambda: windowing.advance(watermark))
    windowing.forget(event_time.take_frontiers())
    released = windowing.release(event_time.mark) if windowing.firing is None else None
    if released is not None:
        event_time.release(released)
    first = first_partition(task)
    if first is not None:
        settled = windowing.take_settled().items()
        event_time.add_frontiers({first + shard: position for shard, position in settled})


def tend(task: Task, idle: bool) -> bool:
    """Between batches: timers, acks of what is durable, the next chunk; True when something moved.

    Args:
        idle: there is nothing to read now.
    """
    windowing = task.live.windowing
    if windowing is None:
        return False
    if windowing.firing is not None:
        moved = next_page(task, windowing)
    else:
        # Only where something could be read before: timers that are always due stop nobody.
        moved = (idle or task.batch is not None) and _tick(task, windowing)
    try:
        durable = windowing.take_durable()
    except Exception as error:
        raise Failure(
            Phase.ASSIGN_WINDOWS.value, error, f"state of {task.name}: {describe(error)}"
        ) from error
    for roots, values in durable:
        task.live.acks.add(roots, values)
    if idle and not durable and windowing.firing is None:
        moved |= end(task, windowing)
    return windowing.cut(idle) or moved or bool(durable) or windowing.emissions.waiting


def _tick(task: Task, windowing: Windowing) -> bool:
    due_ms = windowing.windows.next_tick_ms
    now_ms = task.services.clock.wall_ms() if due_ms is not None else 0
    if due_ms is None or now_ms < due_ms or windowing.emissions.full:
        return False
    if task.services.clock.monotonic_s() < windowing.timers_from_s:
        return False
    fire(task, windowing, lambda: windowing.windows.tick(now_ms))
    return True


def wants_flush(task: Task) -> bool:
    """Whether much was emitted that outputs should make durable now."""
    windowing = task.live.windowing
    return windowing is not None and windowing.emissions.wants_flush(ends=False)


def blocked(task: Task) -> bool:
    """Whether nothing more should be read: what fires at one moment is not through, or so much was
    emitted that has not arrived."""
    windowing = task.live.windowing
    return windowing is not None and (windowing.firing is not None or windowing.emissions.full)


def complete(windowing: Windowing, message: Completions) -> None:
    """Trees of what the task has emitted."""
    if message.retries_max:
        windowing.emissions.force_retry(message.roots, message.retries_max)
    else:
        windowing.emissions.complete(message.roots)
