"""The phases of a windowed task: recovery, assigning segments to windows, firing, ending.

A task with windows is a source as well: it owns one partition a shard of its state, from which what
its triggers emit begins new trees. It ends when everything that feeds it has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import compress
from typing import Any

from onyx.flow.batch import Batch
from onyx.flow.grouping import SHARDS, key_getter, keys_of, naming, shard_of
from onyx.flow.leaves import Leaves
from onyx.flow.predicates import Resolve
from onyx.model.job import Job
from onyx.model.workflow import ancestors, children
from onyx.state.recovery import Recovered
from onyx.state.spilled import holder
from onyx.task.emissions import UNSETTLED_MAX, Emissions
from onyx.task.failures import Failure, describe, place
from onyx.task.firings import call_emit, call_sync
from onyx.task.inheriting import inherit_windows, may_inherit
from onyx.task.messages import Completions
from onyx.task.phases import Phase, Progress
from onyx.task.recovering import recovered_state, shards_of_rank
from onyx.task.state import Task, Windowed
from onyx.task.uniqueness import first_seen
from onyx.task.windowing import Windowing
from onyx.transport.interface import FLUSH
from onyx.windows.compile import compile_windows
from onyx.windows.firing import Firing
from onyx.windows.groups import group_value, hashable_keys
from onyx.windows.task_windows import TaskWindows

logger = logging.getLogger("onyx.task")

COMPLETED_AT_ONCE = 16
"""Shards that fire for the last time in one step."""

PHASE = Phase.ASSIGN_WINDOWS.value


def shards_of(task: Task) -> int:
    """How many shards the state of the task has."""
    its = task.static.windowed
    return SHARDS if its is not None and its.group_key is not None else 1


def recover_state(task: Task) -> Progress:
    """Take over the shards of this peer; the job waits for it. Rank 0 numbers the partitions."""
    its = task.static.windowed
    if its is None or task.live.windowing is not None:
        return Progress.ADVANCED
    first = _first_partition(task)
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
    timeout_s = static.entry.pending_timeout / 1000
    return Windowing(
        TaskWindows(
            its.compiled,
            _only_shard if its.group_key is None else shard_of,
            holder(services.settings.state),
        ),
        Emissions(task.name, first, services.clock, timeout_s),
        recovered,
        static.job.guarantee == "exactly-once",
        services.background,
        services.clock,
        services.settings.state,
    )


def _only_shard(_: Any) -> int:
    return 0


def _first_partition(task: Task) -> int | None:
    """Number of the partition of shard 0; None until it is registered, and without trees."""
    if not task.static.tracked:
        return None
    registered = task.services.replica().partitions.get(task.job_id)
    if registered is not None and task.name in registered:
        return registered[task.name].first
    if task.live.wiring.rank == 0 and not task.registering:
        task.registering = True
        count = shards_of(task)
        task.propose("register-partitions", job=task.job_id, task=task.name, count=count, digest="")
    return None


def read_groups(task: Task) -> None:
    """The groups of a batch, before the function may change what it is given."""
    batch, its = task.batch, task.static.windowed
    if batch is not None and its is not None and its.group_key is not None:
        keys = keys_of(its.group_key, batch.segments)
        with naming(task.static.entry):
            task.groups = hashable_keys(keys)


def assign_windows(task: Task) -> Progress:
    """Segments that were not applied before change the state of their windows; what fires is
    carried out, though nothing of it is sent before it is durable."""
    windowing, batch, leaves = task.live.windowing, task.batch, task.leaves
    its = task.static.windowed
    if its is None or windowing is None or batch is None or leaves is None:
        return Progress.ADVANCED
    try:
        _assign(task, its, windowing, batch, leaves)
    except Exception as error:
        raise _failure(task, error) from error
    return Progress.ADVANCED


def _assign(task: Task, its: Windowed, windowing: Windowing, batch: Batch, leaves: Leaves) -> None:
    segments, groups = leaves.segments, task.groups
    fresh = windowing.fresh(batch)
    if leaves.parents is not None:
        parents = leaves.parents.tolist()
        groups = None if groups is None else [groups[parent] for parent in parents]
        fresh = None if fresh is None else [fresh[parent] for parent in parents]
    if fresh is not None:
        segments = list(compress(segments, fresh))
        groups = None if groups is None else list(compress(groups, fresh))
    unique = its.unique_key
    if unique is not None and segments:
        shards = [0] * len(segments) if groups is None else list(map(_shard_of_key, groups))
        new = first_seen(task.name, unique, windowing, shards, segments)
        segments = list(compress(segments, new))
        groups = None if groups is None else list(compress(groups, new))
    if not segments:
        return
    if task.static.sends_to and task.static.entry.type == "function":
        # Children may change what they are given, and a state may keep it.
        segments = [dict(segment) for segment in segments]
    added = windowing.windows.add(segments, groups, task.services.clock.wall_ms())
    windowing.changed(len(segments))
    _carry_out(task, windowing, added.firings)
    if added.late:
        task.metrics.late(len(added.late))
        for child in its.late_to:
            for index in added.late:
                shard = 0 if groups is None else _shard_of_key(groups[index])
                windowing.emit(shard, [segments[index]], child)


def _shard_of_key(key: Any) -> int:
    return shard_of(group_value(key))


def follow(task: Task) -> None:
    """Event time and epochs, as far as they have come: what they pass fires or is forgotten, and
    those downstream hear of a watermark when what it made fire has been sent."""
    windowing, event_time = task.live.windowing, task.live.event_time
    if task.live.committing is not None and event_time is not None:
        task.live.committing.forget(event_time.take_frontiers())
    if windowing is None or event_time is None:
        return
    if event_time.watermark is not None:
        try:
            _carry_out(task, windowing, windowing.advance(event_time.watermark))
        except Exception as error:
            raise _failure(task, error) from error
    windowing.forget(event_time.take_frontiers())
    released = windowing.release(event_time.mark)
    if released is not None:
        event_time.release(released)
    first = _first_partition(task)
    if first is not None:
        settled = windowing.take_settled().items()
        event_time.add_frontiers({first + shard: position for shard, position in settled})


def _carry_out(task: Task, windowing: Windowing, firings: Iterable[Firing]) -> None:
    """Call the users' functions: `sync` at once, and what `emit` gives is sent when durable."""
    its, event = task.static.windowed, task.static.event
    assert its is not None, "only windows fire"
    for firing in firings:
        if firing.shard in windowing.closed:
            continue  # a timer or a watermark that came late: nobody listens any more
        call_sync(its.functions, event, firing)
        windowing.emit(firing.shard, call_emit(its.functions, event, firing))
        windowing.changed(1)


def _failure(task: Task, error: Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    detail = f"windows of {task.name}: {describe(error)}{place(error)}"
    return Failure(PHASE, error, detail)


def tend(task: Task, idle: bool) -> bool:
    """Between batches: timers, acks of what is durable, the next chunk; True when something moved.

    Args:
        idle: there is nothing to read now.
    """
    windowing = task.live.windowing
    if windowing is None:
        return False
    moved = _tick(task, windowing)
    try:
        durable = windowing.take_durable()
    except Exception as error:
        raise Failure(PHASE, error, f"state of {task.name}: {describe(error)}") from error
    for roots, values in durable:
        task.live.acks.add(roots, values)
    if idle and not durable and windowing.durable:
        moved |= _close(task, windowing)
    return windowing.cut(idle) or moved or bool(durable) or windowing.emissions.waiting


def _tick(task: Task, windowing: Windowing) -> bool:
    due_ms = windowing.windows.next_tick_ms
    now_ms = task.services.clock.wall_ms() if due_ms is not None else 0
    if due_ms is None or now_ms < due_ms:
        return False
    try:
        _carry_out(task, windowing, windowing.windows.tick(now_ms))
    except Exception as error:
        raise _failure(task, error) from error
    return True


def wants_flush(task: Task) -> bool:
    """Whether much was emitted that outputs should make durable now."""
    windowing = task.live.windowing
    return windowing is not None and windowing.emissions.wants_flush(ends=False)


def blocked(task: Task) -> bool:
    """Whether so much was emitted and has not arrived that nothing more should be read."""
    windowing = task.live.windowing
    return windowing is not None and windowing.emissions.unsettled > UNSETTLED_MAX


def _close(task: Task, windowing: Windowing) -> bool:
    """When all that feeds the task has ended: fire for the last time, and when all that was
    emitted has arrived tell the log."""
    if windowing.ended or not _fed_no_more(task):
        return False
    if _complete_some(task, windowing):
        return True
    if windowing.emissions.wants_flush(ends=True):
        task.live.outbox.broadcast(FLUSH)
        return True
    if windowing.emissions.unsettled:
        return False
    windowing.ended = True
    if task.static.tracked:
        _propose_exhausted(task, windowing)
    elif task.static.sink is None:
        task.live.ends.pass_on()
    return True


def _complete_some(task: Task, windowing: Windowing) -> bool:
    """Fire some of the shards that have not fired for the last time; False when none is left. A
    large state becomes several chunks, and is not gone through for each shard."""
    left = [shard for shard in windowing.shards if shard not in windowing.closed]
    chosen = left[:COMPLETED_AT_ONCE]
    if chosen:
        try:
            now_ms = task.services.clock.wall_ms()
            _carry_out(task, windowing, windowing.windows.complete(chosen, now_ms))
        except Exception as error:
            raise _failure(task, error) from error
        for shard in chosen:
            windowing.close(shard)
    return bool(chosen)


def _propose_exhausted(task: Task, windowing: Windowing) -> None:
    first = _first_partition(task)
    assert first is not None, "registered before this peer was ready"
    partitions = [first + shard for shard in windowing.shards]
    if partitions:
        task.propose("exhaust-input", job=task.job_id, task=task.name, partitions=partitions)


def _fed_no_more(task: Task) -> bool:
    live = task.live
    if not task.static.tracked:
        return live.ends.all_arrived() and bool(live.wiring.upstream)
    exhausted = task.services.replica().exhausted_inputs.get(task.job_id)
    its = task.static.windowed
    if its is None or exhausted is None:
        return False
    return all(source in exhausted for source in its.fed_by)


def has_ended(task: Task) -> bool:
    """Whether its windows, if it has any, have fired for the last time and all has arrived."""
    return task.live.windowing is None or task.live.windowing.ended


def complete(windowing: Windowing, message: Completions) -> None:
    """Trees of what the task has emitted."""
    if message.retry:
        windowing.emissions.force_retry(message.roots)
    else:
        windowing.emissions.complete(message.roots)


def sends_to(job: Job, task: str) -> tuple[str, ...]:
    """The children that get what a task makes: of a reduce task only what its triggers emit, and
    none that is there for late segments."""
    late = {window.late_to for window in job.windows if window.task == task}
    return tuple(child for child in children(job.workflow)[task] if child not in late)


def compiled(job: Job, task: str, resolve: Resolve) -> Windowed | None:
    """The windows of a task, ready to run; None when it has none.

    Raises:
        UserError: a function is not registered or not of the right kind.
    """
    windows = compile_windows(job, task, resolve)
    if windows is None:
        return None
    entry = job.entry(task)
    mine = {window.id: window for window in job.windows if window.task == task}
    triggers = [trigger for trigger in job.triggers if trigger.window_id in mine]
    names = {name for each in triggers for name in (each.sync, each.emit) if name is not None}
    all_windowed = {window.task for window in job.windows}
    return Windowed(
        compiled=windows,
        group_key=key_getter(entry, resolve),
        unique_key=entry.uniqueness_key if entry.deduplicate else None,
        late_to=tuple(sorted({each.late_to for each in mine.values() if each.late_to})),
        fed_by=frozenset(
            name
            for name in ancestors(job.workflow, task)
            if name in all_windowed or job.entry(name).type == "input"
        ),
        functions={name: resolve(name) for name in sorted(names)},
    )
