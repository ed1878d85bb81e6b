"""From what is seen of a task to why it does not advance: a table, pure.

The facts are read from beside the task, while its thread may be anywhere, also inside a function
that never comes back. The first row that fits says why; no row means that the task is idle, which
is no stall.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from onyx.ids import TaskName
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.rolling import ROLL_LIMITS
from onyx.program.phases import Phase
from onyx.reports.stalls import Reason
from onyx.task.table import LOOP_STARTS, TaskKind

ROLL_OPTION = "rollSeconds"
_OF_PARTS = ("files", "spark")
"""Outputs that keep a part open so long by default."""
BUSY_S = 1.0
"""A step that has taken so long is inside something that does not come back."""


class Facts(msgspec.Struct, frozen=True):
    """What is seen of one task on one peer at a moment."""

    kind: TaskKind
    phase: Phase
    maker: str = ""
    """The name of the function or plugin of the task."""
    step_s: float | None = None
    """For how long it has been in the present step; None between two."""
    thread_taken_by: TaskName | None = None
    """Another task that does not give back the thread that both share."""
    permitted: bool = True
    obstacle: str = ""
    """What was Unavailable when the present phase was tried last."""
    restarts: str = ""
    """Why the peer of the task is about to be replaced."""
    not_ready: tuple[TaskName, ...] = ()
    """Tasks some of whose peers are not ready in this allocation version."""
    outbox_to: tuple[TaskName, ...] = ()
    """Tasks that have not taken what this one has made."""
    in_flight: int = 0
    """Segments of a source, or emitted by windows, that are not complete."""
    overdue: int = 0
    """The segments of these that were read longer than `pending_timeout_ms` ago."""
    pending_timeout_ms: int = 0
    resting: int = 0
    """The segments of these that wait for a retry."""
    next_try: str = ""
    """When the first of them is read again."""
    held_back: bool = False
    """Another task of the process is to be alone in user code, with a suspect."""
    suspects: int = 0
    """Segments over which processes have died, of the batch, that it has yet to try."""
    undurable: int = 0
    """Segments written by an output, or applied by windows, and not durable."""
    attempts: int = 0
    """At sealing, that have failed."""
    spark: bool = False
    query: str = ""
    """What the query of a driver does."""
    progress: str = ""
    """The progress of the stage that runs, in words."""
    aggregating: str = ""
    """Which window Spark aggregates, in words."""
    asks: str = ""
    """The state of another task that the batch waits for."""
    left: str = ""
    """What a processor has left in its inbox, and what it may wait for."""
    tables: str = ""
    """Tables that it looks up and does not have yet."""
    ahead: str = ""
    """For which input this one waits, and how far it is ahead of that."""
    stage: str = ""
    """What the stage in the middle of a job does, which this peer runs beside the task."""


Row = tuple[Reason, Callable[[Facts], bool], Callable[[Facts], str]]

_BUSY_IN: dict[Phase, tuple[Reason, str]] = {
    Phase.APPLY_FN: (Reason.FUNCTION, "function {maker} is running"),
    Phase.ASSIGN_WINDOWS: (
        Reason.WINDOWS,
        "windows of the task are running (aggregation, trigger)",
    ),
    Phase.START_TASK: (Reason.LIFECYCLE, "lifecycle start_task is running"),
    Phase.BEFORE_TASK: (Reason.LIFECYCLE, "lifecycle before_task_start is running"),
    Phase.BEFORE_BATCH: (Reason.LIFECYCLE, "lifecycle before_batch is running"),
    Phase.AFTER_READ_BATCH: (Reason.LIFECYCLE, "lifecycle after_read_batch is running"),
    Phase.AFTER_APPLY_FN: (Reason.LIFECYCLE, "lifecycle after_apply_fn is running"),
}
_DOING = {
    Phase.BUILD: "being built",
    Phase.RECOVER: "taking over",
    Phase.RESUME: "opening its partitions",
    Phase.READ_BATCH: "reading",
    Phase.ROUTE: "writing",
    Phase.WRITE_BATCH: "writing",
    Phase.AFTER_BATCH: "making durable",
    Phase.SEAL: "sealing",
}


def _is_busy(facts: Facts) -> bool:
    return facts.step_s is not None and facts.step_s >= BUSY_S


def _stage(facts: Facts) -> str:
    what = f"Spark stage, attempt {facts.attempts + 1}, is running"
    return f"{what}: {facts.progress}" if facts.progress else what


def _not_ready(facts: Facts) -> str:
    tasks = ", ".join(facts.not_ready) or "the other tasks"
    return f"waits until all peers of {tasks} are ready"


def _incomplete(facts: Facts) -> str:
    if not facts.overdue:
        return "nothing that was read is completed"
    return (
        f"nothing that was read is completed, {facts.overdue:,} segments for longer than "
        f"pendingTimeout ({facts.pending_timeout_ms:,} ms), after which they are read again if no "
        "worker works on them"
    )


def _in_loop(facts: Facts) -> bool:
    return facts.phase not in EARLY and facts.phase is not Phase.SEAL


EARLY = frozenset(
    {
        Phase.LOAD_JOB, Phase.START_TASK, Phase.BUILD, Phase.BEFORE_TASK, Phase.WIRE,
        Phase.RECOVER, Phase.SIGNAL_READY, Phase.AWAIT_READY, Phase.RESUME,
    }
)  # fmt: skip
"""Phases before the loop, in which no peer of the job can work."""

_ROWS: tuple[Row, ...] = (
    (Reason.THREAD, lambda f: f.thread_taken_by is not None,
     lambda f: f"shares its thread with task {f.thread_taken_by}, which does not give it back"),
    (Reason.ZOOKEEPER, lambda f: not f.permitted,
     lambda _: "the log does not answer this worker, so its tasks are paused"),
    (Reason.RESTARTING, lambda f: bool(f.restarts), lambda f: f.restarts),
    (Reason.UNAVAILABLE, lambda f: bool(f.obstacle), lambda f: f.obstacle),
    (Reason.LOADING, lambda f: f.phase is Phase.LOAD_JOB,
     lambda _: "reads the job from the log, or waits for the savepoint with which it begins"),
    (Reason.START_TASK, lambda f: f.phase is Phase.START_TASK,
     lambda _: "a lifecycle's start_task says that it may not start yet"),
    (Reason.LOADING, lambda f: f.phase in (Phase.BUILD, Phase.RECOVER) and bool(f.tables),
     lambda f: f"reads the tables that it looks up: {f.tables}"),
    (Reason.PEERS, lambda f: f.phase is Phase.AWAIT_READY, _not_ready),
    (Reason.RECOVERING, lambda f: f.phase in EARLY and f.kind is TaskKind.INPUT,
     lambda _: "waits for the list of partitions, or for how far they were read"),
    (Reason.RECOVERING, lambda f: f.phase in EARLY, lambda _: "takes over the task's state"),
    (Reason.RECOVERING, lambda f: f.phase is Phase.TAKE_OVER,
     lambda _: "asks whether a result is committed, and fences off the dead"),
    (Reason.SPARK, lambda f: f.phase is Phase.RUN_QUERY,
     lambda f: f"the query on Spark is {f.query}"),
    (Reason.PLUGIN, lambda f: f.phase is Phase.PUBLISH, lambda _: "publishes the result"),
    (Reason.SPARK, lambda f: f.phase is Phase.SEAL and f.spark,
     lambda f: f"Spark stage failed {f.attempts} times and is run again"),
    (Reason.PLUGIN, lambda f: f.phase is Phase.SEAL,
     lambda f: f"sealing by {f.maker} failed {f.attempts} times and is tried again"),
    (Reason.SPARK, lambda f: bool(f.aggregating), lambda f: f.aggregating),
    (Reason.LOOKUP, lambda f: bool(f.asks), lambda f: f"waits for {f.asks}"),
    (Reason.INBOX, lambda f: bool(f.left), lambda f: f.left),
    (Reason.SUSPECTS, lambda f: f.held_back,
     lambda _: "waits while segments that have ended a worker process are tried alone"),
    (Reason.SUSPECTS, lambda f: f.suspects > 0,
     lambda f: f"tries {f.suspects:,} segments that have ended a worker process one by one"),
    (Reason.DOWNSTREAM, lambda f: bool(f.outbox_to),
     lambda f: f"waits for room in front of {', '.join(f.outbox_to)}"),
    (Reason.NOT_DURABLE, lambda f: f.undurable > 0,
     lambda f: f"{f.maker} has not made {f.undurable:,} segments durable"),
    (Reason.RETRY, lambda f: f.resting > 0,
     lambda f: f"{f.resting:,} segments wait for a retry, the next at {f.next_try}"),
    (Reason.SPARK, lambda f: bool(f.stage) and not f.in_flight,
     lambda f: f"{f.stage}: {f.progress}" if f.progress else f.stage),
    (Reason.AHEAD, lambda f: bool(f.ahead) and not f.overdue, lambda f: f.ahead),
    (Reason.COMPLETIONS, lambda f: f.in_flight > 0, _incomplete),
)  # fmt: skip


def diagnose(facts: Facts) -> tuple[Reason, str] | None:
    """Why the task does not advance, in words; None when it has nothing to do."""
    if _is_busy(facts):
        return _busy(facts)
    for reason, fits, why in _ROWS:
        if fits(facts):
            return reason, why(facts)
    return None


def allowed_s(reason: Reason, task: CatalogEntry, job: Job) -> float:
    """How long the job itself has a task rest for a reason: that is no stall.

    An output keeps a quiet part open for its `rollSeconds`. A batch may be filled for its
    `batchTimeout` at each task on the way, and is complete only when its part is closed. An input
    that is ahead waits for as long as the slower one takes, which has a report of its own.
    """
    if reason is Reason.AHEAD:
        return math.inf
    if reason is Reason.NOT_DURABLE:
        return _roll_s(task)
    if reason is Reason.COMPLETIONS:
        filling_ms = sum(each.batch_timeout for each in job.catalog)
        return filling_ms / 1000 + max(map(_roll_s, job.catalog))
    return 0.0


def _roll_s(task: CatalogEntry) -> float:
    """By the option that all outputs have which roll by time; of a user's it may be anything."""
    by_default = ROLL_LIMITS.age_s if task.plugin in _OF_PARTS else 0.0
    found = task.options.get(ROLL_OPTION, by_default)
    return float(found) if isinstance(found, int | float) else 0.0


def is_alone(facts: Facts) -> bool:
    """Whether nothing of the job can advance while this task does not."""
    return not _in_loop(facts)


def _busy(facts: Facts) -> tuple[Reason, str]:
    phase = facts.phase
    if phase is Phase.SEAL and facts.spark:
        return Reason.SPARK, _stage(facts)
    if phase in _BUSY_IN:
        reason, why = _BUSY_IN[phase]
        return reason, why.format(maker=facts.maker)
    if phase is Phase.ROUTE and facts.kind is not TaskKind.OUTPUT:
        return Reason.CONDITION, "a flow condition, or what groups segments, is running"
    if facts.kind is TaskKind.FUNCTION:
        return Reason.FUNCTION, f"code of the task is running in phase {phase.value}"
    return Reason.PLUGIN, f"plugin {facts.maker} is {_DOING.get(phase, 'running')}"


assert EARLY.isdisjoint(LOOP_STARTS)
