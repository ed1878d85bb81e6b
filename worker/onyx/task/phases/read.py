"""BEFORE_BATCH, READ_BATCH, AFTER_READ_BATCH: segments come from the source or the inbox."""

from __future__ import annotations

from onyx.flow.batch import as_given, as_shown
from onyx.program.phases import Phase
from onyx.program.program import Program
from onyx.task.batch_task import BatchTask
from onyx.task.options import follow_options
from onyx.task.parts.work import Work
from onyx.task.phases.idle import idle
from onyx.task.phases.intake import read, take_kept
from onyx.task.retrying import suspects
from onyx.task.stateful.upkeep import blocked
from onyx.task.table import ADVANCED, Answer
from onyx.telemetry.recorder import ROOTS_MAX


def before_batch(program: Program) -> Answer:
    """What is done before a batch is read."""
    program.lifecycles.merge("before_batch", program.event)
    return ADVANCED


def read_batch(task: BatchTask) -> Answer:
    """Take a batch. Nothing to take is the moment for acks, frontiers and flushes."""
    follow_options(task)
    runtime, allocation, work = task.runtime, task.allocation, task.work
    if runtime.tables is not None:
        runtime.tables.tend()
    work.timer.begin(runtime.sizing.wants_cpu)
    if runtime.delivery.keeps and take_kept(runtime, allocation, work):
        work.timer.read()
        return ADVANCED
    if blocked(allocation.keeper):
        return idle(task)
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
        return Phase.ROUTE
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
