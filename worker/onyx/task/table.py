"""The phases of a task, in order, as a table.

Each row says to which kinds of tasks a phase applies and whether it may wait: a phase that waits is
stepped again later and nothing blocks inside. The architecture of the original names the phases of
execution; this is the same list with the wiring of an allocation version in front. `machine.RUN`
has the function of each row, and refuses to load if a row has none.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import MappingProxyType

from onyx.program.phases import Phase


class Progress(enum.Enum):
    """What a step came to."""

    ADVANCED = "advanced"
    """Something was done: step again soon."""
    WAITING = "waiting"
    """Nothing can be done now: step again when woken, or a little later."""
    DONE = "done"
    """The task has ended; it must not be stepped again."""


ADVANCED, WAITING, DONE = Progress
"""The members of Progress as names of the module, for what runs with every batch: to look a member
up in its class takes Python 3.11 as long as ten comparisons."""


class Kind(enum.StrEnum):
    """What a task does at its end of the workflow."""

    INPUT = "input"
    FUNCTION = "function"
    OUTPUT = "output"
    STAGE = "stage"
    """Runs a Spark stage in the middle: an output to the tasks above, an input to those below."""
    DRIVER = "driver"
    """The kind of a job that Spark runs: input and output at once, and the only task there is."""


Answer = Progress | Phase
"""What a phase answers: ADVANCED goes on with its successor in the table, WAITING is stepped again,
and a phase named goes on there."""

EVERY = frozenset(Kind)
ON_PEERS = frozenset({Kind.INPUT, Kind.FUNCTION, Kind.OUTPUT, Kind.STAGE})
SOURCE = frozenset({Kind.INPUT, Kind.STAGE})
SINK = frozenset({Kind.OUTPUT, Kind.STAGE})
WINDOWED = frozenset({Kind.FUNCTION, Kind.OUTPUT})
DRIVER = frozenset({Kind.DRIVER})


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    phase: Phase
    kinds: frozenset[Kind]
    waits: bool
    """Whether the phase may answer WAITING."""


TABLE: tuple[Row, ...] = (
    Row(Phase.LOAD_JOB, EVERY, waits=True),
    Row(Phase.START_TASK, ON_PEERS, waits=True),
    Row(Phase.BUILD, ON_PEERS, waits=False),
    Row(Phase.BEFORE_TASK, ON_PEERS, waits=False),
    Row(Phase.WIRE, EVERY, waits=False),
    Row(Phase.RECOVER, EVERY, waits=True),
    Row(Phase.SIGNAL_READY, EVERY, waits=False),
    Row(Phase.AWAIT_READY, EVERY, waits=True),
    Row(Phase.RESUME, SOURCE, waits=True),
    Row(Phase.BEFORE_BATCH, ON_PEERS, waits=False),
    Row(Phase.READ_BATCH, ON_PEERS, waits=True),
    Row(Phase.AFTER_READ_BATCH, ON_PEERS, waits=False),
    Row(Phase.APPLY_FN, ON_PEERS, waits=False),
    Row(Phase.AFTER_APPLY_FN, ON_PEERS, waits=False),
    Row(Phase.ROUTE, ON_PEERS, waits=False),
    Row(Phase.ASSIGN_WINDOWS, WINDOWED, waits=False),
    Row(Phase.SEND, ON_PEERS, waits=False),
    Row(Phase.WRITE_BATCH, ON_PEERS, waits=True),
    Row(Phase.AFTER_BATCH, ON_PEERS, waits=False),
    Row(Phase.SEAL, SINK, waits=True),
    Row(Phase.TAKE_OVER, DRIVER, waits=True),
    Row(Phase.RUN_QUERY, DRIVER, waits=True),
    Row(Phase.PUBLISH, DRIVER, waits=True),
    Row(Phase.COMPLETE, DRIVER, waits=True),
)

LOOP_END = Phase.AFTER_BATCH


LOOP_STARTS = (Phase.BEFORE_BATCH, Phase.READ_BATCH, Phase.RUN_QUERY)
"""The first of these that is not skipped. The driver of a query has no batches: its loop is the
wait for the query."""
Successors = Mapping[Phase, Phase]


@cache
def successors(kind: Kind, skipped: frozenset[Phase] = frozenset()) -> Successors:
    """For each phase of this kind of task the one that follows. The loop closes after AFTER_BATCH,
    so its successor is where a batch begins.

    Args:
        kind: of the task.
        skipped: phases of the loop that have nothing to do in this task.
    """
    phases = [row.phase for row in TABLE if kind in row.kinds and row.phase not in skipped]
    follows = dict(pairwise(phases))
    begins = next(phase for phase in LOOP_STARTS if phase in phases)
    return MappingProxyType(follows | {LOOP_END: begins, Phase.SEAL: begins})


WAITING_PHASES = frozenset(row.phase for row in TABLE if row.waits)
"""The phases that use the log, the transport or a plugin: they run only while the worker may
act."""
