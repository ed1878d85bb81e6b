"""The phases of a task, in order: a table for each kind of task.

Each row says whether its phase may wait: a phase that waits is stepped again later and nothing
blocks inside. The architecture of the original names the phases of execution; this is the same list
with the wiring of an allocation version in front. The functions of the rows are in `kinds` and in
`driver/driver_task`, which refuse to load if a row has none.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from types import MappingProxyType

import msgspec

from onyx.program.phases import Phase


class StepOutcome(enum.Enum):
    """What a step came to."""

    ADVANCED = "advanced"
    """Something was done: step again soon."""
    WAITING = "waiting"
    """Nothing can be done now: step again when woken, or a little later."""
    DONE = "done"
    """The task has ended; it must not be stepped again."""


ADVANCED, WAITING, DONE = StepOutcome
"""The members as names of the module, for what runs with every batch: to look a member up in its
class takes Python 3.11 as long as ten comparisons."""


class TaskKind(enum.StrEnum):
    """What a task does at its end of the workflow."""

    INPUT = "input"
    FUNCTION = "function"
    OUTPUT = "output"
    STAGE = "stage"
    """Runs a Spark stage in the middle: an output to the tasks above, an input to those below."""
    DRIVER = "driver"
    """The kind of a job that Spark runs: input and output at once, and the only task there is."""


Answer = StepOutcome | Phase
"""What a phase answers: ADVANCED goes on with its successor in the table, WAITING is stepped again,
and a phase named goes on there."""


class PhaseRow(msgspec.Struct, frozen=True):
    """One row of a table."""

    phase: Phase
    waits: bool = False
    """Whether the phase may answer WAITING."""


Table = tuple[PhaseRow, ...]

_WIRED: Table = (
    PhaseRow(Phase.WIRE),
    PhaseRow(Phase.RECOVER, waits=True),
    PhaseRow(Phase.SIGNAL_READY),
    PhaseRow(Phase.AWAIT_READY, waits=True),
)
"""What every peer of a job passes through with each allocation version."""
_BEGUN: Table = (
    PhaseRow(Phase.LOAD_JOB, waits=True),
    PhaseRow(Phase.START_TASK, waits=True),
    PhaseRow(Phase.BUILD),
    PhaseRow(Phase.BEFORE_TASK),
    *_WIRED,
)
_READ: Table = (
    PhaseRow(Phase.BEFORE_BATCH),
    PhaseRow(Phase.READ_BATCH, waits=True),
    PhaseRow(Phase.AFTER_READ_BATCH),
)
_LOOKED_UP: Table = (PhaseRow(Phase.LOOK_UP, waits=True),)
_APPLIED: Table = (
    PhaseRow(Phase.APPLY_FN),
    PhaseRow(Phase.AFTER_APPLY_FN),
    PhaseRow(Phase.ROUTE),
)
_WRITTEN: Table = (
    PhaseRow(Phase.SEND),
    PhaseRow(Phase.WRITE_BATCH, waits=True),
    PhaseRow(Phase.AFTER_BATCH),
)
_RESUMED: Table = (PhaseRow(Phase.RESUME, waits=True),)
_ASSIGNED: Table = (PhaseRow(Phase.ASSIGN_WINDOWS, waits=True),)
_SEALED: Table = (PhaseRow(Phase.SEAL, waits=True),)

TABLES: Mapping[TaskKind, Table] = MappingProxyType(
    {
        TaskKind.INPUT: _BEGUN + _RESUMED + _READ + _APPLIED + _WRITTEN,
        TaskKind.FUNCTION: _BEGUN + _READ + _LOOKED_UP + _APPLIED + _ASSIGNED + _WRITTEN,
        TaskKind.OUTPUT: _BEGUN + _READ + _APPLIED + _ASSIGNED + _WRITTEN + _SEALED,
        TaskKind.STAGE: _BEGUN + _RESUMED + _READ + _APPLIED + _WRITTEN + _SEALED,
        TaskKind.DRIVER: (
            PhaseRow(Phase.LOAD_JOB, waits=True),
            *_WIRED,
            PhaseRow(Phase.TAKE_OVER, waits=True),
            PhaseRow(Phase.RUN_QUERY, waits=True),
            PhaseRow(Phase.PUBLISH, waits=True),
            PhaseRow(Phase.COMPLETE, waits=True),
        ),
    }
)

Successors = Mapping[Phase, Phase]
"""For each phase the one that follows."""
LOOP_END = Phase.AFTER_BATCH
"""The last phase of the loop over batches."""
LOOP_STARTS = (Phase.BEFORE_BATCH, Phase.READ_BATCH, Phase.RUN_QUERY)
"""The first of these that is not skipped. The driver of a query has no batches: its loop is the
wait for the query."""


@cache
def successors(kind: TaskKind, skipped: frozenset[Phase] = frozenset()) -> Successors:
    """For each phase of this kind of task the one that follows. The loop closes after AFTER_BATCH,
    so its successor is where a batch begins.

    Args:
        kind: of the task.
        skipped: phases of the loop that have nothing to do in this task.
    """
    phases = [row.phase for row in TABLES[kind] if row.phase not in skipped]
    follows = dict(pairwise(phases))
    begins = next(phase for phase in LOOP_STARTS if phase in phases)
    return MappingProxyType(follows | {LOOP_END: begins, Phase.SEAL: begins})


WAITING_PHASES = frozenset(row.phase for table in TABLES.values() for row in table if row.waits)
"""The phases that use the log, the transport or a plugin: they run only while the worker may
act."""
