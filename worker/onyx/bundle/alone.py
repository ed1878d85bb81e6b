"""One task of a job in this process, with nobody around it: no peer, no log, no neighbours.

The task is what it is on a peer and in a query of Spark: its program (`program.program`). Batches
pass hooks, function, conditions and what keeps state as there, and what comes out goes nowhere.
State begins empty. Plugins are not made, and no table is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onyx.base.runs import Numbers
from onyx.base.seams import Clock, SystemClock
from onyx.errors import UserFunctionError, contained
from onyx.flow.batch import Batch, EncodedRun, Segments, as_given, as_shown
from onyx.flow.groups.grouping import GroupChecks
from onyx.flow.groups.keys import SHARDS
from onyx.ids import JobId, PeerId, TaskName
from onyx.keystate.buckets import InMemory
from onyx.keystate.groups import Shards
from onyx.ledger.applied import Mask, without
from onyx.model.job import CatalogEntry, Job
from onyx.model.workflow import looked_up, read_of
from onyx.operators.building import with_functions
from onyx.operators.context import OperatorContext
from onyx.operators.table import operator_of
from onyx.program.batch_work import BatchWork, apply, route
from onyx.program.failure import Failure, report
from onyx.program.lifecycles import compile_lifecycles
from onyx.program.operator import Operator
from onyx.program.phases import Phase
from onyx.program.program import Program, event_of
from onyx.telemetry.interface import NULL_TASK

PEER = PeerId("alone")
Resolve = Callable[[str], Callable[..., Any]]


def why_not_alone(job: Job, entry: CatalogEntry) -> str:
    """Why a task cannot work alone; empty if it can."""
    if entry.stage is not None:
        return "its Spark stage runs on rows of Spark, and not on a batch (key stage)"
    if any(each.task == entry.name and each.engine == "spark" for each in job.windows):
        return "its windows are computed by Spark from files (key engine of a window)"
    if tables := looked_up(entry):
        return f"it looks up {', '.join(sorted(tables))}, and there are no rows of tables here"
    if read_of(job, entry) is not None:
        return "it looks up the state of another task, and there is no state here"
    return ""


class LoneTask:
    """A task that begins with its first batch.

    Args:
        resolve: looks up what the job names.
        fn_params: leading arguments of the function, which workers are started with.

    Raises:
        UserError: a function is not registered, or not of the right kind.
    """

    def __init__(
        self, id: JobId, job: Job, entry: CatalogEntry, resolve: Resolve,
        fn_params: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        program = Program(
            id,
            job,
            entry,
            event_of(PEER, id, job, entry),
            SystemClock(),
            NULL_TASK,
            lifecycles=compile_lifecycles(job, entry.name, resolve),
        )
        self._program = with_functions(program, resolve, fn_params)
        self._operator: Operator | None = None
        self._has_begun = False

    def run(self, work: BatchWork) -> Failure | None:
        """Run a batch; what fails of it and would end the job, or None."""
        at = Phase.BEFORE_TASK
        try:
            if not self._has_begun:
                self._program.lifecycles.merge("before_task_start", self._program.event)
                self._operator = _operator(self._program)
                self._has_begun = True
            for at, step in _STEPS:  # noqa: B007 (where it has failed)
                step(self._program, self._operator, work)
        except Failure as failure:
            return failure
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return Failure(at.value, contained(error))
        return None


def said(id: JobId, task: str, failure: Failure) -> dict[str, Any]:
    """The report of what has failed here."""
    return report(id, TaskName(task), PEER, failure, values=True)


def raised(error: BaseException) -> BaseException:
    """What code of the user's has raised, where Onyx has raised something else because of it."""
    while isinstance(error, UserFunctionError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _read(program: Program, operator: Operator | None, work: BatchWork) -> None:
    assert work.batch is not None, "it is what is replayed"
    if program.observed:
        if program.takes == "dicts":
            work.batch.segments = as_shown(work.batch.segments)
        program.event["batch"], program.event["results"] = as_given(work.batch.segments), []
    program.lifecycles.merge("after_read_batch", program.event)


def _apply(program: Program, operator: Operator | None, work: BatchWork) -> None:
    if operator is None:
        apply(program, work, examined=False)
    else:
        operator.apply(work, examined=False)


def _route(program: Program, operator: Operator | None, work: BatchWork) -> None:
    if operator is not None:
        operator.look(work)
    route(program, GroupChecks(program.routes.groupings, ()), work)


def _change(program: Program, operator: Operator | None, work: BatchWork) -> None:
    if operator is not None and work.batch is not None:
        operator.change(work)


_STEPS: Sequence[tuple[Phase, Callable[[Program, Operator | None, BatchWork], None]]] = (
    (Phase.AFTER_READ_BATCH, _read),
    (Phase.APPLY_FN, _apply),
    (
        Phase.AFTER_APPLY_FN,
        lambda program, *_: program.lifecycles.merge("after_apply_fn", program.event),
    ),
    (Phase.ROUTE, _route),
    (Phase.ASSIGN_WINDOWS, _change),
)


PHASES = tuple(phase for phase, _ in _STEPS)
"""Where a batch can fail here."""


def _operator(program: Program) -> Operator | None:
    its = program.operator
    if its is None:
        return None
    own = list(range(SHARDS)) if its.is_split else [0]
    keeper = Unkept(its.shards(), program.clock)
    operator = operator_of(its, OperatorContext(program, keeper.shard_of, own, InMemory()))
    for shard in own:
        operator.restore(shard, [])
    operator.restored()
    operator.begin(program, keeper)
    return operator


class Unkept:
    """Keeps no state, and sends nothing (`program.operator.Keeper`)."""

    closed: frozenset[int] = frozenset()

    def __init__(self, shard_of: Shards, clock: Clock) -> None:
        self.shard_of, self.clock = shard_of, clock

    def unapplied(self, batch: Batch) -> Mask | None:
        """All segments."""
        return None

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """All but those that are withdrawn."""
        return without(len(batch), withdrawn)

    def has_seen(self, shard: int, value: Any) -> bool:
        """No segment has come before."""
        return False

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """All are new."""
        return [True] * len(values)

    def emit(
        self,
        shard: int,
        segments: Segments,
        child: str | None = None,
        encoded: EncodedRun | None = None,
    ) -> None:
        """Nobody gets it."""

    def emit_for(self, shard: int, segments: Segments, parents: Numbers) -> None:
        """Nobody gets it."""

    def changed(self, segments: int) -> None:
        """Nothing is recorded."""
