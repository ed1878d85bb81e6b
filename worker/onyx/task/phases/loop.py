"""The phases of the loop: read, apply, route, write, ack; and sealing an output.

Whole batches only: the one thing done per segment is the user's own function.
"""

from __future__ import annotations

from onyx.codec.refusals import refuse
from onyx.errors import Blocked, contained, describe
from onyx.flow.apply import Leaves, apply_function
from onyx.flow.batch import Batch, concatenate
from onyx.ledger.hop import split_values
from onyx.task import kept as keeping
from onyx.task.channels import event_time
from onyx.task.failures import suspects
from onyx.task.failures.failure import Failure
from onyx.task.phases.route import decide
from onyx.task.phases.send import put_to_child, send, send_emissions
from onyx.task.phases.table import Kind, Phase, Progress
from onyx.task.source import segment_hooks
from onyx.task.source.source import Source
from onyx.task.task import Task
from onyx.task.windowed import assign
from onyx.task.windowed.end import has_ended
from onyx.transport.interface import FLUSH, Control, ControlKind

EXHAUSTED_AT_ONCE = 10_000
"""Partitions named in one entry of the log, whose size is limited."""
SEAL_BLOCKED_RETRY_S = 5.0
"""A seal that waits for room is tried again so often: it may have to run a whole stage."""
SPARK = "spark"
"""The plugin whose seal is a Spark stage."""


def before_batch(task: Task) -> Progress:
    if task.static.lifecycles.has("before_batch"):
        task.static.lifecycles.merge("before_batch", task.static.event)
    return Progress.ADVANCED


def read_batch(task: Task) -> Progress:
    """Take what there is; nothing there is the moment for acks, frontiers and flushes."""
    task.timer.begin()
    if task.kept and keeping.take(task, put_to_child):
        task.timer.read()
        return Progress.ADVANCED
    if assign.blocked(task):
        return _idle(task)
    if task.parts.waiting:
        suspects.next_part(task)
    elif _read_source(task) if task.kind is Kind.INPUT else _read_inbox(task):
        suspects.isolate(task)
    else:
        return _idle(task)
    task.timer.read()
    return Progress.ADVANCED


def _read_source(task: Task) -> bool:
    source = task.static.source
    assert source is not None
    _tend_source(task, source)
    batch = source.read()
    task.batch = batch
    if batch is None:
        return False
    retried = source.take_retried()
    if retried:
        task.metrics.retried(retried)
    segment_hooks.retried(task, source, batch, retried)
    return True


def _read_inbox(task: Task) -> bool:
    inbox, batch_size = task.live.inbox, task.static.entry.batch_size
    if not (inbox.hurried or task.filling.over(inbox.waiting_segments(), batch_size)):
        return False
    deliveries = inbox.take(batch_size)
    if not deliveries:
        return False
    batches: list[Batch] = []
    for delivery in deliveries:
        if isinstance(delivery.item, Control):
            task.controls.append((delivery.channel.source, delivery.item))
        else:
            batches.append(delivery.item)
    task.batch = concatenate(batches) if batches else None
    return True


def _idle(task: Task) -> Progress:
    if task.seal_wanted:
        task.phase = Phase.SEAL
        return Progress.ADVANCED
    live, source, sink = task.live, task.static.source, task.static.sink
    assign.follow(task)
    event_time.pass_on(task, idle=True)
    if source is not None:
        _end_source(task, source)
    if not live.outbox.drain() and source is not None:
        return Progress.WAITING
    if sink is not None:
        sink.tick()
        _ack_durable(task)
    moved = assign.tend(task, idle=True)
    live.acks.tend(idle=True)
    _tell_queue(task)
    return Progress.ADVANCED if moved else Progress.WAITING


def _tell_queue(task: Task) -> None:
    if task.kind is not Kind.INPUT:
        capacity = task.services.settings.task.inbox_segments_max
        task.metrics.queue(task.live.inbox.waiting_segments(), capacity)


def after_read_batch(task: Task) -> Progress:
    """`batch` and `results` of the event are the segments as read and as the function left them."""
    if task.static.observed:
        task.static.event["batch"] = task.batch.segments if task.batch is not None else []
        task.static.event["results"] = []
    if task.batch is not None and task.static.lifecycles.has("after_read_batch"):
        task.static.lifecycles.merge("after_read_batch", task.static.event)
    return Progress.ADVANCED


def apply_fn(task: Task) -> Progress:
    batch, static = task.batch, task.static
    assign.read_groups(task)
    if task.leaves is not None:  # kept from the last allocation version
        return Progress.ADVANCED
    if batch is None:
        task.leaves = None
    elif static.fn is None:
        task.leaves = Leaves(batch.segments)
    else:
        params = static.event["params"]
        task.leaves = apply_function(static.fn, params, batch.segments, static.entry.batch_fn)
    if static.fn is not None or (static.source is not None and not static.source.examined):
        _refuse(task)
    if task.leaves is not None and static.observed:
        static.event["results"] = task.leaves.segments
    task.timer.applied()
    return Progress.ADVANCED


def _refuse(task: Task) -> None:
    """What cannot travel between tasks has failed; what came from another task can."""
    if task.leaves is not None:
        task.leaves = refuse(task.leaves)


def after_apply_fn(task: Task) -> Progress:
    if task.leaves is not None and task.static.lifecycles.has("after_apply_fn"):
        task.static.lifecycles.merge("after_apply_fn", task.static.event)
        _refuse(task)
    return Progress.ADVANCED


def route(task: Task) -> Progress:
    """Decide where what was made of the batch goes, and what becomes of what has failed."""
    if task.batch is not None and task.leaves is not None:
        assign.prepare(task, task.leaves)
        task.routed = decide(task, task.batch, task.leaves)
    return Progress.ADVANCED


def send_batch(task: Task) -> Progress:
    """New segments with their lineage go to the outbox, or to the plugin; then what triggers have
    emitted, then control items."""
    if task.batch is not None and task.leaves is not None:
        assert task.routed is not None, "the phase before"
        if task.kind is Kind.OUTPUT:
            _write(task, task.batch, task.leaves)
        else:
            send(task, task.batch, task.routed)
    send_emissions(task)
    _pass_controls(task)
    return Progress.ADVANCED


def write_batch(task: Task) -> Progress:
    """Wait until every destination has taken its part, and flush the plugin if that was asked for:
    here, because a phase that the store refuses is done again, and nothing is written twice."""
    sink = task.static.sink
    if sink is not None and task.live.flush_wanted:
        sink.flush()
        task.live.flush_wanted = False
    if not _hand_over(task):
        task.timer.refused(task.metrics)
        return Progress.WAITING
    task.timer.written(task.metrics)
    return Progress.ADVANCED


def _hand_over(task: Task) -> bool:
    live = task.live
    transport = task.services.transport
    while live.retries:
        site, roots, limit = live.retries[-1]
        if not transport.send_completions(
            site.group, live.wiring.job, live.wiring.version, site.peer, roots, limit
        ):
            return False
        live.retries.pop()
    return live.outbox.drain()


def after_batch(task: Task) -> Progress:
    batch, leaves = task.batch, task.leaves
    if task.static.sink is not None:
        task.static.sink.tick()  # first, because a phase that cannot go on is done again
    if task.static.lifecycles.has("after_batch"):
        task.static.lifecycles.merge("after_batch", task.static.event)
    if task.static.sink is not None:
        _ack_durable(task)
    assign.tend(task, idle=False)
    task.live.acks.tend(idle=False)
    if batch is not None and leaves is not None:
        task.timer.tell(task.metrics, len(batch), len(leaves))
        _tell_queue(task)
    task.forget_batch()
    task.course.batches += 1
    if task.static.observed:
        task.static.event["batch"] = task.static.event["results"] = []
    if task.seal_wanted and batch is None:
        task.phase = Phase.SEAL  # control items may keep coming: waiting for none is waiting long
    return Progress.ADVANCED


def seal(task: Task) -> Progress:
    """Seal the output of the whole task; a failure is tried again before it kills the job."""
    sink = task.static.sink
    assert sink is not None
    clock = task.services.clock
    now_s = clock.monotonic_s()
    if now_s < task.retry_after_s:
        return Progress.WAITING
    is_stage = task.static.entry.plugin == SPARK
    try:
        sink.seal()
    except Blocked:
        task.retry_after_s = now_s + SEAL_BLOCKED_RETRY_S
        raise
    except BaseException as raised:
        error = contained(raised)
        if is_stage:
            task.metrics.spark_stage(clock.monotonic_s() - now_s, ok=False)
        task.seal_attempts += 1
        if task.seal_attempts >= task.services.settings.task.seal_attempts_max:
            times = task.seal_attempts
            detail = f"sealing the output failed {times} times, last with {describe(error)}"
            raise Failure(Phase.SEAL.value, error, detail) from error
        task.retry_after_s = now_s + task.services.settings.task.ready_back_off_s
        return Progress.WAITING
    if is_stage:
        task.metrics.spark_stage(clock.monotonic_s() - now_s, ok=True)
    task.seal_wanted = False
    task.propose("seal-output", job=task.job_id, task=task.name)
    return Progress.ADVANCED


def _write(task: Task, batch: Batch, leaves: Leaves) -> None:
    sink = task.static.sink
    assert sink is not None
    if task.live.committing is not None:
        task.live.committing.write(batch, leaves)
        return
    windowing = task.live.windowing
    if windowing is None or batch.roots is None or batch.ids is None:
        sink.write(leaves.segments, batch.roots, batch.ids)
        return
    values, withheld = split_values(batch.ids)
    sink.write(leaves.segments, batch.roots, values)
    windowing.withhold(batch.roots, withheld)


def _pass_controls(task: Task) -> None:
    """Hand on what came in order with the batch; several flushes at once are one."""
    live, sink = task.live, task.static.sink
    controls, task.controls = task.controls, []
    if task.static.source is not None and task.static.source.wants_flush():
        controls.append((task.peer, FLUSH))
    flush = assign.wants_flush(task)
    for source, control in controls:
        if control.kind is ControlKind.END:
            live.ends.arrive(source, control)
        elif control.kind is ControlKind.FLUSH:
            flush = True
        elif live.event_time is not None:
            live.event_time.hear(source, control)
    assign.follow(task)
    event_time.pass_on(task)
    if flush:
        live.acks.hurry()
    if flush and sink is not None:
        live.flush_wanted = True
    elif flush:
        live.outbox.broadcast(FLUSH)
    if controls and not task.static.tracked and live.ends.all_arrived() and live.wiring.upstream:
        if sink is not None:
            live.flush_wanted = True
        elif has_ended(task):
            live.ends.pass_on()


def _ack_durable(task: Task) -> None:
    sink, live = task.static.sink, task.live
    assert sink is not None
    for roots, values in sink.take_durable():
        live.acks.add(roots, values)
    ends = live.ends
    ended = not task.static.tracked and ends.all_arrived() and has_ended(task)
    if ended and sink.all_durable():
        ends.pass_on()


def _tend_source(task: Task, source: Source) -> None:
    """Checkpoint frontiers every few seconds; a job that drains reads nothing new."""
    if task.job_id in task.services.replica().draining_jobs:
        source.drain()
    now_s = task.services.clock.monotonic_s()
    if now_s >= task.next_save_s:
        task.next_save_s = now_s + task.services.settings.ledger.frontier_interval_s
        source.checkpoint()
        _tell_progress(task, source)


def _tell_progress(task: Task, source: Source) -> None:
    task.metrics.source(source.in_flight, source.completed)


def _end_source(task: Task, source: Source) -> None:
    """What is left to do when there is nothing to read now: flush, end, tell the log."""
    live = task.live
    if live.exhaust_proposed or not source.finished_reading():
        return
    if not task.static.tracked:
        live.ends.pass_on()
        if not live.ends.complete:
            return
    elif not source.all_complete():
        if source.wants_flush():
            live.acks.hurry()
            live.outbox.broadcast(FLUSH)
        return
    if source.known and not source.save_frontiers():
        return
    _tell_progress(task, source)
    live.exhaust_proposed = True
    known = source.known
    for start in range(0, max(1, len(known)), EXHAUSTED_AT_ONCE):
        part = known[start : start + EXHAUSTED_AT_ONCE]
        task.propose("exhaust-input", job=task.job_id, task=task.name, partitions=part)
