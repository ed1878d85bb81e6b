"""Run a stage over the parts of a job and publish its result by one rename.

    <path>/parts/<job>/      Parquet parts, written by all peers of the task, and `_onyx.json`
                             (`versions`), by which those of earlier versions of the job are read
    <path>/result/           the result of the last job that finished, with `_onyx.json`

The result is staged in the staging directory of this incarnation. Sealing may be repeated after any
crash: a result with the job's id is final, and any other is replaced (`result_folder`).

Invariant: the worker renames the result, out of the staging directory that it holds open. Only the
worker knows whether it may have been declared dead. And Spark creates missing directories: after a
fence the path of a zombie may exist again, but not the directory that the zombie holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from onyx.errors import Unavailable, UserFunctionError
from onyx.ids import JobId
from onyx.spark.child.request import StageRequest, StageRunner, Watch
from onyx.spark.stage import result_folder
from onyx.spark.stage.direct import write_directly
from onyx.spark.stage.frames import result_of
from onyx.spark.stage.parts import with_parts
from onyx.spark.stage.permission import fenced, wait_until_permitted
from onyx.storage.file_system import leads_to, opened
from onyx.storage.interface import Location


class Workspace(msgspec.Struct, frozen=True):
    """Where one peer finds and puts the files of one task of one job."""

    location: Location
    job: JobId
    permitted: Callable[[], bool]
    """False while this incarnation may have been declared dead."""
    pause: Callable[[float], None] = time.sleep
    watch: Watch = msgspec.field(default_factory=Watch)
    """Who follows the stage. It is not wanted once the task is to stop: its job was killed or
    suspended, or it moves."""
    appends: bool = False
    """Whether the result is one of many."""
    run: str = "part"
    """How the names of the files of a result begin."""

    @property
    def result(self) -> Path:
        """The directory of the result."""
        folder = result_of(self.location, self.job, self.appends).local
        assert folder is not None, "results in stores are those of object_stage"
        return folder

    def permit(self, wanted: Callable[[], bool]) -> Callable[[], None]:
        """What returns when this worker may publish (`permission.wait_until_permitted`)."""
        return lambda: wait_until_permitted(self.location, self.permitted, wanted, self.pause)


def run_stage(
    work: Workspace,
    staging: Callable[[], Path],
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
) -> None:
    """Make `<path>/result` the result of this job; nothing happens if it is already.

    Arguments:
        staging: the directory of this incarnation that others remove when it is dead.
        request: what to run; its parts and target are filled in here.
        timeout_s: longest run in seconds.

    Raises:
        UserFunctionError: the stage failed, with its message.
        Unavailable: Spark or the file system failed; try again.
        Fenced: this incarnation was declared dead meanwhile, or the task is to stop.
    """
    try:
        if not request.write.direct and result_folder.is_of(work.result, work.job):
            return
        own = staging()
        with opened(own, ()) as held:

            def wanted() -> bool:
                return work.watch.wanted() and leads_to(own, held)

            if request.write.direct:
                watch, permit = Watch(wanted, work.watch.seen), work.permit(wanted)
                write_directly(request, work.location, work.job, runner, timeout_s, watch, permit)
            else:
                _run(work, own, held, request, runner, timeout_s, wanted)
    except FileNotFoundError as error:
        raise fenced() from error
    except OSError as error:
        raise Unavailable(f"{work.location}: the result cannot be written: {error}") from error


def _run(
    work: Workspace,
    own: Path,
    held: int,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
    wanted: Callable[[], bool],
) -> None:
    target = own / result_folder.new_folder(held, work.result)
    filled = with_parts(request, work.location, work.job).written_to(str(target.resolve()))
    if any(frame.known for frame in filled.frames):
        runner(filled, timeout_s, Watch(wanted, work.watch.seen))
    else:  # No segment ever came, so nobody knows the columns: the result has no rows either.
        result_folder.without_rows(target)
    # A worker that is fenced does not see its target either, and that is not the user's fault.
    if leads_to(own, held) and not target.is_dir():
        raise UserFunctionError(
            f"Spark at {request.master} has written the result to {target}, which this worker does "
            "not see: `path` must be on a volume that both share"
        )
    parts = sum(len(frame.parts) for frame in filled.frames)
    manifest: dict[str, object] = {"job": work.job, "stage": request.stage, "parts": parts}
    result_folder.finish(target, work.run, manifest)
    # Asked last, when all is durable: from here to the rename is the only time in which a worker
    # that is declared dead could still publish, and then the rename finds its directory gone.
    work.permit(wanted)()
    result_folder.publish(work.result, held, target.name)
