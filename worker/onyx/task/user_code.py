"""Noting that a task is in user code, phase by phase.

Only phases in which code of the user's runs are noted, and only for tasks that have such code
there: a process that dies in Onyx's own says nothing about a segment. Outputs are noted whoever
wrote their plugin, because a library that ends the process over a segment is the same to the user.
Inputs are noted if code of the user's makes their segments; they have none yet while it runs, so a
death counts against the task. Those of Onyx may block in a library for long while they wait for
something new, and everybody who wants to be alone would wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from onyx.model.job import CatalogEntry
from onyx.recorder import UNNAMED
from onyx.task.phases.table import Kind, Phase, Progress
from onyx.task.task import Static, Task

T = TypeVar("T")

OWN = ":"
"""In the name of a plugin that is the user's."""
GENERATED_BY = "fn"
"""Option of an input of Onyx that names the function that makes its segments."""
NO_BATCH = frozenset({Phase.RESUME, Phase.READ_BATCH})
"""Phases whose user code is not about the batch that the task may still hold."""


def user_phases(kind: Kind, static: Static) -> frozenset[Phase]:
    """Phases in which a task runs code of the user's, as far as it has been built."""
    windowed, has = static.windowed is not None, static.lifecycles.has
    reads = kind is Kind.INPUT and reads_with_user_code(static.entry)
    there = {
        Phase.START_TASK: has("start_task"),
        Phase.BUILD: OWN in (static.entry.plugin or ""),
        Phase.BEFORE_TASK: has("before_task_start"),
        Phase.BEFORE_BATCH: has("before_batch"),
        Phase.RESUME: reads,
        Phase.READ_BATCH: windowed or reads,  # windowed: triggers by time and by watermark
        Phase.AFTER_READ_BATCH: has("after_read_batch"),
        Phase.APPLY_FN: static.fn is not None or windowed,
        Phase.AFTER_APPLY_FN: has("after_apply_fn"),
        Phase.ASSIGN_WINDOWS: windowed,
        Phase.ROUTE: windowed or static.conditions is not None or bool(static.groupings),
        Phase.SEND: windowed or kind is Kind.OUTPUT,
        Phase.AFTER_BATCH: windowed or has("after_batch"),
    }
    return frozenset(phase for phase, runs in there.items() if runs)


def reads_with_user_code(entry: CatalogEntry) -> bool:
    """Whether code of the user's makes the segments of an input."""
    return OWN in (entry.plugin or "") or GENERATED_BY in entry.options


def run_beside(task: Task, what: str, work: Callable[[], T]) -> T:
    """Do work of the user's over no segment on another thread than the task's, noted in a place of
    its own. Nobody waits with it: what is beside a suspect leaves in doubt whose death it was."""
    slot = task.services.recorder.slot(task.job_id, task.name)
    noted = slot.begin(what, None, 0, False)
    try:
        return work()
    finally:
        if noted:
            slot.end()
        slot.close()


def run(task: Task, phase: Phase, work: Callable[[Task], Progress]) -> Progress:
    """Do a phase, noted if user code runs in it; WAITING while somebody is to be alone there."""
    if phase not in task.user_phases:
        return work(task)
    batch, roots, id = task.batch, None, 0
    if batch is not None and phase not in NO_BATCH:
        roots = UNNAMED if batch.roots is None else batch.roots
        if len(batch) == 1 and batch.ids is not None:
            id = int(batch.ids[0])
    if not task.slot.begin(phase.value, roots, id, task.alone):
        task.course.held_back_in = phase
        return Progress.WAITING
    task.course.held_back_in = None
    try:
        return work(task)
    finally:
        task.slot.end()
