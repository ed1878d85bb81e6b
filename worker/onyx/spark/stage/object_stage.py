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
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onyx.errors import Unavailable
from onyx.plugins.parts.names import run_name
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import StageRequest, StageRunner, Watch
from onyx.spark.objects.staged import ObjectTarget, Staged, read_list
from onyx.spark.session.scratch import spark_scratch
from onyx.spark.stage.direct import DirectWrite, WriteNotes
from onyx.spark.stage.directory_stage import frames_of, wait_until_permitted
from onyx.spark.stage.frames import result_of
from onyx.spark.target import MANIFEST
from onyx.storage.objects.bucket import Bucket, Piece, only_if
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing
from onyx.storage.objects.urls import ObjectUrl
from onyx.storage.s3 import Prefix
from onyx.storage.staging.s3 import ObjectParts
from onyx.structs import prepared

SUCCESS = "_SUCCESS"


@prepared
class Manifest(msgspec.Struct, frozen=True):
    """What is in `_onyx.json`."""

    job: str
    stage: str
    parts: int
    run: str
    """An id of this attempt alone."""
    files: tuple[str, ...]
    """Names of the files of the result."""
    replaces: tuple[str, ...]
    """Names of files that are to go."""


@dataclass(frozen=True, slots=True)
class ObjectWorkspace:
    """Where one peer finds and puts the objects of one task of one job."""

    location: Prefix
    context: PluginContext
    fenced: ObjectParts
    """The parts that the stage reads; its result is staged under the same fence."""
    pause: Callable[[float], None] = time.sleep
    appends: bool = False
    """Whether the result is one of many."""

    @property
    def result(self) -> ObjectUrl:
        """Where the files of the result are."""
        result = result_of(self.location, self.context.job, self.appends)
        assert isinstance(result, Prefix), "it is below one"
        return result.url

    @property
    def manifest(self) -> ObjectUrl:
        """The object that says which files are the result."""
        return self.result / MANIFEST


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
    try:
        bucket = Bucket(work.location.url.bucket)
        if request.write.direct:
            _run_direct(work, bucket, request, runner, timeout_s)
            return
        before = bucket.get(work.manifest.key)
        standing = _manifest(before)
        if standing is None or standing.job != work.context.job:
            with spark_scratch() as scratch:
                names = scratch / "staged.json"
                standing = _run(work, bucket, before, names, request, runner, timeout_s)
        _clean_up(work, bucket, standing)
    except OSError as error:
        raise Unavailable(f"{work.location}: {error.strerror or error}") from error


def _run(
    work: ObjectWorkspace,
    bucket: Bucket,
    before: Piece | None,
    names: Path,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
) -> Manifest:
    """The manifest that stands afterwards."""
    context = work.context
    frames = frames_of(work.location, context.job, request)
    run = run_name(context)
    staged: tuple[Staged, ...] = ()
    try:
        if any(frame.known for frame in frames):
            target = ObjectTarget(str(work.result), run, str(work.fenced.notes))
            filled = msgspec.structs.replace(
                request, frames=frames, target=str(names), objects=target
            )
            runner(filled, timeout_s, Watch(context.wanted, context.progress))
            staged = read_list(names)
        # Otherwise no segment ever came, so nobody knows the columns: the result has no rows.
        stale = [each for each in _names(work, bucket) if each not in (MANIFEST, SUCCESS)]
        _publish(work, staged)
    finally:
        work.fenced.abandon(run)
    parts = sum(len(frame.parts) for frame in frames)
    files = tuple(each.name for each in staged)
    manifest = Manifest(context.job, request.stage, parts, run, files, tuple(stale))
    return _decide(work, bucket, before, manifest)


def _run_direct(
    work: ObjectWorkspace,
    bucket: Bucket,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
) -> None:
    context = work.context

    def permit() -> None:
        wait_until_permitted(work.location, context.permitted, context.wanted, work.pause)

    write = DirectWrite(context.job, WriteNotes(work.location, context.job), permit)
    if not write.is_done():
        filled = msgspec.structs.replace(
            request, frames=frames_of(work.location, context.job, request)
        )
        write.run(filled, runner, timeout_s, Watch(context.wanted, context.progress))


def _publish(work: ObjectWorkspace, staged: Iterable[Staged]) -> None:
    context = work.context
    wait_until_permitted(work.result, context.permitted, context.wanted, work.pause)
    work.fenced.complete(
        {"key": (work.result / each.name).key, "upload": each.upload, "tags": each.tags}
        for each in staged
    )


def _decide(
    work: ObjectWorkspace, bucket: Bucket, before: Piece | None, mine: Manifest
) -> Manifest:
    """The manifest that stands: ours, or that of another run of this job."""
    key = work.manifest.key
    try:
        bucket.put(key, msgspec.json.encode(mine), only_if(before))
        return mine
    except (ConditionFailed, ObjectMissing) as error:
        standing = _manifest(bucket.get(key))
        if standing is not None and standing.run == mine.run:
            return mine  # the answer to an earlier try of this very request was lost
        _remove(work, bucket, mine.files)
        if standing is None or standing.job != mine.job:
            raise Unavailable(
                f"{work.result}: another job has put its result there meanwhile; let one job at a "
                "time write to a path"
            ) from error
        return standing


def _clean_up(work: ObjectWorkspace, bucket: Bucket, standing: Manifest) -> None:
    """What is left to do once it is decided; may be done again."""
    _remove(work, bucket, standing.replaces)
    bucket.put((work.result / SUCCESS).key, b"")


def _remove(work: ObjectWorkspace, bucket: Bucket, names: Iterable[str]) -> None:
    for name in names:
        bucket.delete((work.result / name).key)


def _names(work: ObjectWorkspace, bucket: Bucket) -> list[str]:
    prefix = f"{work.result.key}/"
    return [found.key.removeprefix(prefix) for found in bucket.list(prefix)]


def _manifest(found: Piece | None) -> Manifest | None:
    """None also for what is no manifest of this version: it is replaced."""
    try:
        return msgspec.json.decode(found.data, type=Manifest) if found else None
    except msgspec.DecodeError:
        return None
