"""Runs the batch at which a job has failed once more, in this process: no cluster, no ZooKeeper.

The task is what it is on a peer and in a query of Spark: its program (`program.program`), made of
the manifest in the bundle and of functions of this machine. Batches pass function, conditions and
windows as there, and what comes out goes nowhere. State begins empty, because a bundle has none.

The manifest is somebody else's. What it names is looked up in the modules that whoever replays has
listed, and in no others; plugins are not made, and no table is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from onyx.base.runs import Numbers
from onyx.base.seams import Clock, SystemClock
from onyx.base.structs import stored
from onyx.bundle.bundle_file import JobBundle
from onyx.bundle.bundled_log import BundledLog
from onyx.client.reports import exception
from onyx.errors import UserError, contained
from onyx.flow.batch import Batch, EncodedRun, Segments, as_given, as_shown
from onyx.flow.groups.grouping import GroupChecks
from onyx.flow.groups.keys import SHARDS
from onyx.ids import JobId, PeerId, TaskName
from onyx.keystate.buckets import InMemory
from onyx.keystate.groups import Shards
from onyx.ledger.applied import Mask, without
from onyx.log import documents
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.mapping import stored_job
from onyx.model.workflow import looked_up, read_of
from onyx.operators.building import with_functions
from onyx.operators.context import OperatorContext
from onyx.operators.table import operator_of
from onyx.program.batch_work import BatchWork, apply, route
from onyx.program.failed_batch import FailedBatch, segments_of
from onyx.program.failure import Failure, report
from onyx.program.lifecycles import compile_lifecycles
from onyx.program.operator import Operator
from onyx.program.phases import Phase
from onyx.program.program import Program, event_of
from onyx.replica import canonical, machine
from onyx.telemetry.interface import NULL_TASK

PHASES = (
    Phase.AFTER_READ_BATCH, Phase.APPLY_FN, Phase.AFTER_APPLY_FN, Phase.ROUTE, Phase.ASSIGN_WINDOWS
)  # fmt: skip
"""Where a batch can fail that is run again here."""
PEER = PeerId("replay")
Resolve = Callable[[str], Callable[..., Any]]


class FailedTask(msgspec.Struct, frozen=True):
    """What a bundle says of the failure of a job."""

    id: JobId
    job: Job
    entry: CatalogEntry
    report: Mapping[str, Any]
    """What the task has stored."""
    batch: FailedBatch
    segments: Segments

    @property
    def has_state(self) -> bool:
        """Whether the task keeps something between two batches."""
        its = self.entry
        windowed = any(each.task == its.name for each in self.job.windows)
        return windowed or bool(its.state or its.processor or its.left)


def failed_task(bundle: JobBundle) -> FailedTask:
    """The task that has killed the job of a bundle, with its batch.

    Raises:
        UserError: there is none that could be run here; the message says why, and what to do.
    """
    job_id = JobId(bundle.head.job)
    replica = canonical.decode(bundle.origin.replica)
    for each in bundle.entries:
        replica = machine.apply(replica, each)
    log: Any = BundledLog(bundle)  # what writes is not there
    found = exception(log, job_id)
    if found is None:
        if job_id in replica.completed_jobs:
            why = "it has completed"
        elif job_id in replica.killed_jobs:
            why = "it was killed, and by no task"
        else:
            why = "it had not ended when the bundle was made"
        raise UserError(f"job {job_id} has no failure to be replayed: {why}")
    manifest = bundle.chunks.get(replica.digest_of(job_id) or "")
    if manifest is None:
        raise UserError(f"the bundle does not have the manifest of job {job_id}")
    job, task = stored_job(manifest, job_id), str(found.get("task", ""))
    entry = next((each for each in job.catalog if each.name == task), None)
    if entry is None:
        raise UserError(f"job {job_id} failed in {task!r}, which is no task of its manifest")
    refusal = why_not(job, entry, str(found.get("phase", "")))
    if refusal:
        raise UserError(f"task {task} cannot be replayed: {refusal}")
    kept = bundle.documents.get(documents.failed_batch(job_id))
    if kept is None:
        raise UserError(f"task {task} cannot be replayed: {_without_batch(bundle)}")
    what = f"the failed batch of job {job_id}"
    batch = stored(kept.data, FailedBatch, what, "make the bundle again")
    return FailedTask(job_id, job, entry, found, batch, segments_of(batch))


def why_not(job: Job, entry: CatalogEntry, phase: str) -> str:
    """Why what a task did in a phase cannot be done here; empty if it can."""
    if phase not in PHASES:
        return f"it failed in {phase}, which works on no batch or with what is outside of the job"
    if entry.stage is not None:
        return "its Spark stage runs on rows of Spark, and not on a batch (key stage)"
    if any(each.task == entry.name and each.engine == "spark" for each in job.windows):
        return "its windows are computed by Spark from files (key engine of a window)"
    if tables := looked_up(entry):
        return f"it looks up {', '.join(sorted(tables))}, and the bundle has no rows of tables"
    if read_of(job, entry) is not None:
        return "it looks up the state of another task, and the bundle has no state"
    return ""


def _without_batch(bundle: JobBundle) -> str:
    if not bundle.head.values:
        return (
            "the bundle has no segments: make it again with `onyx bundle JOB --values`, as long as "
            "the cluster knows the job"
        )
    return (
        "its batch was not kept: the owner of the worker has it so (ONYX_TASK_REPORT_VALUES), or "
        "one segment is larger than what is kept"
    )


# --- the replay -----------------------------------------------------------------------------------


def replay(failed: FailedTask, resolve: Resolve, fn_params: Sequence[Any] = ()) -> Failure | None:
    """Run the batch; what fails of it now, or None.

    Args:
        resolve: looks up what the job names.
        fn_params: leading arguments of the function, which workers are started with.

    Raises:
        UserError: a function is not registered, or not of the right kind.
    """
    task = failed.entry.name
    program = Program(
        failed.id,
        failed.job,
        failed.entry,
        event_of(PEER, failed.id, failed.job, failed.entry),
        SystemClock(),
        NULL_TASK,
        lifecycles=compile_lifecycles(failed.job, task, resolve),
    )
    program = with_functions(program, resolve, fn_params)
    at = Phase.BEFORE_TASK
    try:
        program.lifecycles.merge("before_task_start", program.event)
        operator = _operator(program)
        work = BatchWork(Batch(failed.segments, upstream=failed.batch.upstream))
        for at, run in _STEPS:  # noqa: B007 (where it has failed)
            run(program, operator, work)
    except Failure as failure:
        return failure
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Failure(at.value, contained(error))
    return None


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


# --- then and now ---------------------------------------------------------------------------------


def said_now(failed: FailedTask, failure: Failure) -> dict[str, Any]:
    """The report of what has failed here."""
    return report(failed.id, TaskName(failed.entry.name), PEER, failure, values=True)


def is_same(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two reports are about the same exception: of one type, with one message or from one
    place. A message may have an address or a time in it, and a place moves when code is mended."""
    if then.get("type") != now.get("type"):
        return False
    return then.get("message") == now.get("message") or (_place(then) == _place(now) != ("", ""))


def _place(found: Mapping[str, Any]) -> tuple[str, str]:
    frames = [frame for error in found.get("errors", ())[:1] for frame in error.get("frames", ())]
    last = frames[-1] if frames else {}
    return str(last.get("function", "")), str(last.get("code", ""))
