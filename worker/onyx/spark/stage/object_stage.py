"""Run a stage over parts in an object store. Executors read and write them themselves; the worker
sees names, and decides which objects are the result.

    <url>/parts/<job>/      Parquet parts, written by all peers of the task, and `_onyx.json`
                            (`versions`), by which those of earlier versions of the job are read
    <url>/result/           the result of the last job that finished, with `_onyx.json`

No store replaces many objects in one step. Executors stage the files of a result as uploads, under
names that no other run uses (`spark.objects.upload`). The worker completes those that Spark has
reported, like parts and under the same fence, and aborts all others of the run.

`_onyx.json` decides: it lists the files of the result, and is written on the condition that it has
not changed since the run began. So of two runs one wins, and the other removes its files.
`_onyx.json` also lists the files that it replaces. The winner removes those, or the next peer that
seals, if the winner dies. Nothing else is ever removed, so a winner that wakes up late cannot reach
the files of a later job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from onyx.errors import Unavailable
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import StageRequest, StageRunner, Watch
from onyx.spark.objects.staged import ObjectTarget, Staged, read_list
from onyx.spark.session.scratch import spark_scratch
from onyx.spark.stage.direct import write_directly
from onyx.spark.stage.object_result import Manifest, ObjectResult
from onyx.spark.stage.parts import with_parts
from onyx.spark.stage.permission import wait_until_permitted
from onyx.storage.interface import Location
from onyx.storage.objects.urls import ObjectUrl
from onyx.storage.staging.s3 import ObjectParts


class ObjectWorkspace(msgspec.Struct, frozen=True):
    """Where one peer finds and puts the objects of one task of one job."""

    location: Location
    context: PluginContext
    fenced: ObjectParts
    """The parts that the stage reads; its result is staged under the same fence."""
    result: ObjectUrl
    """Where the files of the result are."""
    run: str
    """How their names begin: an id of this attempt alone."""
    pause: Callable[[float], None] = time.sleep

    def permit(self) -> None:
        """Returns when this worker may publish (`permission.wait_until_permitted`)."""
        context = self.context
        wait_until_permitted(self.location, context.permitted, context.wanted, self.pause)


def run_object_stage(
    work: ObjectWorkspace, request: StageRequest, runner: StageRunner, timeout_s: float
) -> None:
    """Run a stage over parts in an object store, as `directory_stage.run_stage` does in a
    directory.

    Raises:
        UserFunctionError: the stage failed, with its message.
        UserError: the object store refuses.
        Unavailable: Spark or the store failed; try again.
        Fenced: this incarnation was declared dead meanwhile, or the task is to stop.
    """
    job, watch = work.context.job, Watch(work.context.wanted, work.context.progress)
    try:
        if request.write.direct:
            write_directly(request, work.location, job, runner, timeout_s, watch, work.permit)
            return
        result = ObjectResult(work.result)
        result.look()
        if result.job != job:
            _run(work, result, with_parts(request, work.location, job), runner, timeout_s, watch)
        result.clean_up()
    except OSError as error:
        raise Unavailable(f"{work.location}: {error.strerror or error}") from error


def _run(
    work: ObjectWorkspace,
    result: ObjectResult,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
    watch: Watch,
) -> None:
    run = work.run
    staged: tuple[Staged, ...] = ()
    try:
        if any(frame.known for frame in request.frames):
            target = ObjectTarget(str(result.url), run, str(work.fenced.notes))
            with spark_scratch() as scratch:
                names = scratch / "staged.json"
                runner(request.written_to(str(names), target), timeout_s, watch)
                staged = read_list(names)
        # Otherwise no segment ever came, so nobody knows the columns: the result has no rows.
        # Listed before ours are there, and by name: what another run completes from now on is
        # its own, and only its manifest may say that it goes.
        stale = result.names()
        _publish(work, result, staged)
    finally:
        # Aborts the uploads of this run that were not completed, so that nobody pays for them; of
        # those that were there is nothing left to abort.
        work.fenced.abandon(run)
    parts = sum(len(frame.parts) for frame in request.frames)
    files = tuple(each.name for each in staged)
    result.decide(Manifest(work.context.job, request.stage, parts, run, files, stale))


def _publish(work: ObjectWorkspace, result: ObjectResult, staged: Iterable[Staged]) -> None:
    work.permit()
    work.fenced.complete(
        {"key": (result.url / each.name).key, "upload": each.upload, "tags": each.tags}
        for each in staged
    )
