"""BEFORE_BATCH, READ_BATCH, AFTER_READ_BATCH: a batch comes from the source of the task, its inbox,
or from what was kept for it.

A Spark stage in the middle of a job has two ways in: its inbox, and what it has made of that. They
are read in turn, so that neither waits for the other. Segments of several upstream tasks are
different frames of the stage, those of a join are of different sides. So they stay apart (those of
a processor, which may leave some, in `channels/edges`). Control items follow from all that came
before them: they go behind the last.

With each batch a task follows what the log says of it: keys of its entry that change while it runs,
its part of a limit, and whether its job is paused. That is in the newest replica of the process, so
nobody has to be told: a task that begins later, or that was busy for an hour, takes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from onyx.flow.batch import Batch, as_given, as_shown, by_format
from onyx.ids import PeerId, TaskName
from onyx.ledger.applied import above
from onyx.program.phases import Phase
from onyx.program.program import Program
from onyx.task import suspects
from onyx.task.channels.alignment import HEARD_AT_ONCE_MAX
from onyx.task.channels.edges import Edges, batches_apart, read_edges
from onyx.task.channels.outbox import put_to_child
from onyx.task.parts import Allocation, Runtime, Work
from onyx.task.phases.finish import idle
from onyx.task.source.source import Source, part_of, report_progress, tell_retried
from onyx.task.table import ADVANCED, Answer
from onyx.task.task import BatchTask
from onyx.telemetry.catalog import GIVEN_UP, RETRIES, TAKEN_OVER
from onyx.telemetry.recorder import ROOTS_MAX
from onyx.transport.interface import Control, Delivery, Partial


def before_batch(program: Program) -> Answer:
    """What is done before a batch is read."""
    program.lifecycles.merge("before_batch", program.event)
    return ADVANCED


def read_batch(task: BatchTask) -> Answer:
    """Take a batch. Nothing to take is the moment for acks, frontiers and flushes."""
    _follow_options(task)
    runtime, allocation, work = task.runtime, task.allocation, task.work
    _follow_pause(runtime, allocation)
    if runtime.tables is not None:
        runtime.tables.tend()
    work.timer.begin(runtime.sizing.wants_cpu)
    # What was kept over a change of the allocation is older than all that waits.
    if runtime.delivery.keeps and take_kept(runtime, allocation, work):
        work.timer.read()
        return ADVANCED
    if allocation.keeper is not None and allocation.keeper.blocked:
        return idle(task)
    # Pieces of the last read come before anything new, or control items would overtake segments.
    split = bool(work.pieces.waiting)
    if not split:
        if not read(runtime, allocation, work):
            return idle(task)
        sizing = runtime.sizing
        whole = sizing.fixed or allocation.edges is not None
        most = ROOTS_MAX if whole else sizing.segments_max
        split = suspects.isolate(runtime.assignment, work, most)
    work.timer.read()
    if split and not suspects.next_piece(runtime.assignment, work):
        return Phase.ROUTE  # it has failed without being tried, and that is routed like any failure
    return ADVANCED


def after_read_batch(program: Program, work: Work) -> Answer:
    """`batch` and `results` of the event are the segments as read and as the function left them."""
    if program.observed:
        if work.batch is not None and program.takes == "dicts":
            work.batch.segments = as_shown(work.batch.segments)
        program.event["batch"] = as_given(work.batch.segments) if work.batch is not None else []
        program.event["results"] = []
    if work.batch is not None:
        program.lifecycles.merge("after_read_batch", program.event)
    return ADVANCED


# --- where a batch comes from -------------------------------------------------------------------


def read(runtime: Runtime, allocation: Allocation, work: Work) -> bool:
    """Take the next batch, or control items; False if there are none."""
    source, program = runtime.source, runtime.program
    if allocation.edges is not None:
        return _read_edges(runtime, allocation, allocation.edges, work)
    if source is None and program.operator is not None and program.operator.needs.parents_apart:
        return _read_apart(work, allocation.wiring.upstream, lambda: _take(runtime, allocation))
    if source is None:
        return _take_deliveries(work, _living(allocation, _take(runtime, allocation)))
    if runtime.sink is None:
        work.take(_read_aligned(runtime, allocation, source))
        return work.batch is not None
    return read_either(
        work,
        allocation.wiring.upstream,
        lambda: _take(runtime, allocation),
        lambda: _read_source(runtime, source),
    )


def take_kept(runtime: Runtime, allocation: Allocation, work: Work) -> bool:
    """Go on with what was kept over a change of the allocation."""

    def put(name: TaskName, batch: Batch) -> None:
        child = next(each for each in allocation.wiring.children if each.task == name)
        put_to_child(allocation.outbox, runtime.program.routes.groupings, child, batch)

    kept = runtime.delivery.take_kept(put)
    if kept is None:
        return False
    work.batch, work.leaves = kept
    return True


def _read_aligned(runtime: Runtime, allocation: Allocation, source: Source) -> list[Batch]:
    """What others have said of event time comes first; they hear of what was read before anything
    is done with it that may have to wait."""
    alignment = allocation.alignment
    if alignment is None:
        return _read_source(runtime, source)
    alignment.hear(allocation.inbox.take(HEARD_AT_ONCE_MAX))
    own = source.mark()
    source.most_ms = alignment.most_ms(own)
    batches = _read_source(runtime, source)
    alignment.say(source.mark() if batches else own, runtime.clock.monotonic_s())
    return batches


def _read_source(runtime: Runtime, source: Source) -> list[Batch]:
    if runtime.sink is None and runtime.assignment.latest_run().draining:
        source.drain()  # but not what a stage makes of what was read further up
    if source.checkpoint(runtime.services.settings.ledger.frontier_interval_s):
        report_progress(source, runtime.metrics)
    _follow_limit(runtime, source)
    batches = source.read()
    if given_up := source.take_given_up():
        runtime.metrics.add(GIVEN_UP, given_up)
    if taken_over := source.take_taken_over():
        runtime.metrics.add(TAKEN_OVER, taken_over)
    runtime.sizing.taken(sum(map(len, batches)))
    if batches and (retried := source.take_retried()):
        runtime.metrics.add(RETRIES, retried)
        for batch in batches:
            tell_retried(source, runtime.program, batch)
    return batches


def _take(runtime: Runtime, allocation: Allocation) -> list[Delivery]:
    """What waits in the inbox; nothing while a batch is to be filled."""
    inbox, sizing = allocation.inbox, runtime.sizing
    waiting, segments_max = inbox.waiting_segments(), sizing.segments_max
    # Somebody waits for what is in there (END, FLUSH): then small batches are right.
    if not (inbox.hurried or allocation.filling.over(waiting, segments_max)):
        return []
    sizing.taken(waiting)
    return inbox.take(segments_max)


def _living(allocation: Allocation, deliveries: list[Delivery]) -> list[Delivery]:
    """Without what comes back in a loop although its tree is complete, as that of an attempt that
    was overtaken by the next. Those downstream have been told that nothing of it follows, and may
    have forgotten its ids."""
    event_time, back = allocation.event_time, allocation.wiring.senders_back
    if not back or event_time is None or not event_time.passed:
        return deliveries
    for delivery in deliveries:
        item = delivery.item
        if delivery.channel.source in back and isinstance(item, Batch) and item.roots is not None:
            kept = above(event_time.passed, item.roots)
            delivery.item = item.take(kept.nonzero()[0])
    return [each for each in deliveries if isinstance(each.item, Control) or len(each.item)]


def _read_edges(runtime: Runtime, allocation: Allocation, edges: Edges, work: Work) -> bool:
    def take(full: frozenset[PeerId]) -> list[Delivery]:
        allocation.inbox.hold(full)
        return _living(allocation, _take(runtime, allocation))

    moves = 0 if allocation.keeper is None else allocation.keeper.operator.moves
    work.batch, controls = read_edges(edges, moves, take)
    work.controls += controls
    return work.batch is not None or bool(work.controls)


# --- what the inbox gives, as batches -----------------------------------------------------------


def _take_deliveries(work: Work, deliveries: Sequence[Delivery]) -> bool:
    """Make them one batch, or one of each form, beside states of windows, and the control items
    behind; False if there are none."""
    batches: list[Batch] = []
    for delivery in deliveries:
        if isinstance(delivery.item, Control):
            work.controls.append((delivery.channel.source, delivery.item))
        elif isinstance(delivery.item, Partial):
            work.partials.append(delivery.item)
        else:
            batches.append(delivery.item)
    work.take(by_format(batches) if batches else [])
    return bool(deliveries)


def _read_apart(
    work: Work, upstream: Mapping[PeerId, TaskName], inbox: Callable[[], Sequence[Delivery]]
) -> bool:
    """Take a batch of one parent task, of which there may be several.

    Args:
        upstream: peers of the tasks above, each with its task.
        inbox: takes what waits there.
    """
    if work.others:
        _next_frame(work)
        return True
    return _take_frames(work, upstream, inbox())


def read_either(
    work: Work,
    upstream: Mapping[PeerId, TaskName],
    inbox: Callable[[], Sequence[Delivery]],
    result: Callable[[], list[Batch]],
) -> bool:
    """Take a batch of the stage, from the other side than the last one if that has something.

    Args:
        work: gets the batch.
        upstream, inbox: as in `_read_apart`.
        result: reads what the stage has made.
    """
    if work.others:
        _next_frame(work)
        return True
    for own in (not work.own, work.own):
        if own:
            work.take(result())
            found = work.batch is not None
        else:
            found = _take_frames(work, upstream, inbox())
        if found:
            work.own = own
            return True
    return False


def _take_frames(
    work: Work, upstream: Mapping[PeerId, TaskName], deliveries: Sequence[Delivery]
) -> bool:
    """Keep apart what came from different tasks."""
    for delivery in deliveries:
        if isinstance(delivery.item, Control):
            work.behind.append((delivery.channel.source, delivery.item))
    frames: dict[TaskName, list[Batch]] = {}
    for batch in batches_apart(deliveries, upstream):
        frames.setdefault(TaskName(batch.upstream or ""), []).append(batch)
    for task, batches in frames.items():
        for batch in by_format(batches):
            batch.upstream = task
            work.others.append(batch)
    _next_frame(work)
    return bool(deliveries)


def _next_frame(work: Work) -> None:
    """Go on with the next of them. Behind the last one are the control items."""
    work.batch = work.others.popleft() if work.others else None
    if not work.others:
        work.controls, work.behind = [*work.controls, *work.behind], []


# --- what the log says while a task runs --------------------------------------------------------


def _follow_options(task: BatchTask) -> None:
    """Take the values that were set since the last batch. A job that has ended has none, and
    nothing is done for it."""
    runtime = task.runtime
    run = runtime.assignment.latest_run()
    if runtime.followed.has(run) or not run.allocation:
        return
    job = runtime.followed.take(run)
    entry = job.entry(task.name)
    runtime.program.event.update(catalog=job.catalog, task_map=entry)
    task.load(replace(runtime, program=replace(runtime.program, job=job, entry=entry)))
    runtime.sizing.change(entry)
    if runtime.source is not None:
        runtime.source.change(entry)
    task.allocation.filling.timeout_s = entry.batch_timeout / 1000


def _follow_limit(runtime: Runtime, source: Source) -> None:
    """Find the peer's part of the task's limit, again whenever the run of the job is another one:
    peers come and go, and partitions end."""
    run, followed = runtime.assignment.latest_run(), runtime.followed
    if run is followed.limited_by:
        return
    followed.limited_by = run
    most = runtime.program.entry.segments_per_second_max
    if most is None:
        source.limit(None)
        return
    registered = runtime.services.replica().partitions(runtime.job_id).get(runtime.task)
    numbers = range(0)
    if registered is not None:
        numbers = range(registered.first, registered.first + registered.count)
    source.limit(part_of(most, source.known, numbers, run.exhausted_partitions))


def _follow_pause(runtime: Runtime, allocation: Allocation) -> None:
    """Pause, or go on, as the log has it now. A paused job comes to rest
    (`replica/commands/pause_job`): inputs read nothing new. Timers and event time go on until all
    sources above a task are at rest, and then stand still: else a task that had said so could emit
    again, and one whose timers are always due would never say it."""
    run, source = runtime.assignment.latest_run(), runtime.source
    if source is not None and (source.paused or run.is_paused):
        source.paused = run.is_paused
        for partition in source.partitions.values():  # some may have been opened since
            partition.pause(source.paused)
    operator = runtime.program.operator
    above = () if operator is None else operator.fed_by
    allocation.rests = run.is_paused and all(run.has_rested(TaskName(each)) for each in above)
