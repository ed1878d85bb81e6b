"""Recording that a task is in user code, phase by phase, for the flight recorder.

Only phases in which code of the user's runs are recorded, and only for tasks that have such code
there: a process that dies in Onyx's own code says nothing about a segment. Outputs are recorded
whoever wrote their plugin, because a library that ends the process over a segment is the same to
the user. Inputs are recorded if code of the user's makes their segments; they have none yet while
it runs, so a death counts against the task. Inputs of Onyx may block in a library for long while
they wait for something new, and everybody who wants to be alone would wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from onyx.model.job import CatalogEntry
from onyx.program.phases import Phase
from onyx.program.program import Program
from onyx.task.parts import Assignment, Work
from onyx.telemetry.recorder import UNNAMED, Slot

T = TypeVar("T")

OWN = ":"
"""In the name of a plugin that is the user's."""
GENERATED_BY = "fn"
"""Option of an input of Onyx that names the function that makes its segments."""
NO_BATCH = frozenset({Phase.RESUME, Phase.READ_BATCH})
"""Phases whose user code is not about the batch that the task may still hold."""


class UserCode:
    """The user code of one task: its slot in the recorder, and the phases that are recorded."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.phases = frozenset({Phase.LOAD_JOB})
        """More are known when the job is loaded, and the task built."""
        self.held_back_in: Phase | None = None
        """The phase in which the task waits because another one is to be alone in user code."""

    def enter(self, phase: Phase, work: Work) -> bool:
        """Record that a phase begins in which user code runs; False while another task is to be
        alone there."""
        batch, roots, id = work.batch, None, 0
        if batch is not None and phase not in NO_BATCH:
            roots = UNNAMED if batch.roots is None else batch.roots
            if batch.ids is not None and len(batch.ids) == 1:
                id = int(batch.ids[0])
        entered = self.slot.begin(phase, roots, id, work.alone)
        self.held_back_in = None if entered else phase
        return entered


def user_phases(program: Program) -> frozenset[Phase]:
    """Phases in which a task runs code of the user's, as far as it has been built."""
    windowed, has = program.operator is not None, program.lifecycles.has
    routes = program.routes
    reads = program.entry.type == "input" and reads_with_user_code(program.entry)
    there = {
        Phase.START_TASK: has("start_task"),
        Phase.BUILD: OWN in (program.entry.plugin or ""),
        Phase.BEFORE_TASK: has("before_task_start"),
        Phase.BEFORE_BATCH: has("before_batch"),
        Phase.RESUME: reads,
        Phase.READ_BATCH: windowed or reads,  # windowed: triggers by time and by watermark
        Phase.AFTER_READ_BATCH: has("after_read_batch"),
        Phase.APPLY_FN: program.fn is not None or windowed,
        Phase.AFTER_APPLY_FN: has("after_apply_fn"),
        Phase.ASSIGN_WINDOWS: windowed,
        Phase.ROUTE: windowed or routes.conditions is not None or bool(routes.groupings),
        Phase.SEND: windowed or program.entry.type == "output",
        Phase.AFTER_BATCH: windowed or has("after_batch"),
    }
    return frozenset(phase for phase, runs in there.items() if runs)


def reads_with_user_code(entry: CatalogEntry) -> bool:
    """Whether code of the user's makes the segments of an input."""
    return OWN in (entry.plugin or "") or GENERATED_BY in entry.options


def run_beside(assignment: Assignment, what: str, work: Callable[[], T]) -> T:
    """Do work of the user's over no segment on another thread than the task's, recorded in a slot
    of its own. Nobody waits for it: beside a suspect, it leaves in doubt whose death it was."""
    slot = assignment.services.recorder.slot(assignment.job_id, assignment.task)
    recorded = slot.begin(what, None, 0, False)
    try:
        return work()
    finally:
        if recorded:
            slot.end()
        slot.close()
