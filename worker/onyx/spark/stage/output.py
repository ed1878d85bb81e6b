"""Output `spark`: peers write Parquet parts, and when all input is done one peer runs a stage.

Peers write like the `files` output: a part is published whole and durable, and only then are its
segments acked. `seal` runs the stage over the parts of this job and of the versions before it
(`versions`); the runtime calls it again, here or on another peer, until it succeeds or its attempts
are used up.

The result is published in a folder or in a store:

    <path>/parts/<job>/      Parquet parts, written by all peers of the task, and `_onyx.json`
                             (`versions`), by which those of earlier versions of the job are read
    <path>/result/           the result of the last job that finished, with `_onyx.json`

Sealing may be repeated after any crash: a result with the job's id is final, and any other is
replaced.

*In a folder* (`run_folder_stage`) Spark reads and writes files where they are, and a result gets
there by one rename. It is made below the staging directory of its worker, which the worker holds
open. The result of an earlier job steps aside into that directory. If the new one does not come,
because the worker died in between or the rename failed, it goes back before the directory is
removed. Invariant: the worker renames the result, out of the staging directory that it holds open.
Only the worker knows whether it may have been declared dead. And Spark creates missing directories:
after a fence the path of a zombie may exist again, but not the directory that the zombie holds.

*In a store* (`run_object_stage`) executors read and write objects; the worker sees names, and
decides which objects are the result, as no store replaces many objects in one step. Executors stage
the files of a result as uploads, under names that no other run uses (`spark.objects.writing`). The
worker completes those that Spark has reported, like parts and under the same fence, and aborts all
others of the run. `_onyx.json` decides: it lists the files of the result, and is written on the
condition that it has not changed since the run began. So of two runs one wins, and the other
removes its files. `_onyx.json` also lists the files that it replaces. The winner removes those, or
the next peer that seals, if the winner dies. Nothing else is ever removed, so a winner that wakes
up late cannot reach the files of a later job. Each step may be done again by another worker, so
each names the objects that it means.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from onyx.base.structs import UNREADABLE, prepared
from onyx.errors import Blocked, Fenced, Unavailable, UserFunctionError
from onyx.ids import GroupId, JobId
from onyx.plugins.options import folder_at
from onyx.plugins.parts.folders import run_name, writer_of
from onyx.plugins.parts.formats import ParquetFormat
from onyx.plugins.parts.writer import ColumnsPartsWriter
from onyx.plugins.protocol import PluginContext, UpgradedJob
from onyx.plugins.rolling import roll_limits
from onyx.spark.child.request import StageRequest, StageRunner, Watch
from onyx.spark.child.runner import run_in_child
from onyx.spark.objects.messages import ObjectTarget, Staged, read_list
from onyx.spark.processes import spark_scratch
from onyx.spark.result_files import MANIFEST
from onyx.spark.stage import versions
from onyx.spark.stage.direct import write_directly
from onyx.spark.stage.frames import folder_of, request_of, result_of
from onyx.spark.stage.options import SparkOptions
from onyx.spark.stage.versions import with_parts
from onyx.spark.types import for_spark
from onyx.storage.file_system import (
    is_full,
    leads_to,
    make_durable_directory,
    opened,
    remove_tree,
    sync_directory,
)
from onyx.storage.interface import Location
from onyx.storage.objects.bucket import Bucket, ObjectBytes, only_if
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing
from onyx.storage.objects.urls import ObjectUrl
from onyx.storage.s3 import Prefix
from onyx.storage.staging.folder import DirectoryParts
from onyx.storage.staging.interface import PartStore, Writer
from onyx.storage.staging.s3 import ObjectParts


class SparkOutput(ColumnsPartsWriter):
    """The output of one peer."""

    def __init__(
        self, context: PluginContext, options: SparkOptions, runner: StageRunner = run_in_child
    ) -> None:
        """Raises NameNotRegistered, UserError: see `frames.request_of`."""
        self._request = request_of(context, options)
        self._options = options
        self._runner = runner
        appends = self._request is not None and self._request.write.appends
        self._results = results_at(context, options.path, options.frame, appends)
        form = ParquetFormat(context, fit=for_spark)
        super().__init__(self._results.parts, form, context, roll_limits(options))

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called on every peer before it is ready, from a thread that may block: make sure that the
        result will hold the parts of the old job and of those before it."""
        with self._store.explained():
            self._results.upgrade(old)

    def seal(self) -> None:
        """Run the stage, unless there is none or its result stands.

        Raises:
            UserFunctionError: the stage failed.
            Blocked: there is no room for the result.
            Unavailable: Spark or the file system failed; try again.
            Fenced: this incarnation was declared dead meanwhile, or the task is to stop.
        """
        if self._request is not None:
            try:
                self._results.run(self._request, self._runner, self._options.stage_timeout)
            except (UserFunctionError, Unavailable) as error:
                kind = Blocked if is_full(error) else type(error)
                where = f"{self._context.where}: stage {self._request.stage}"
                raise kind(f"{where}: {error}") from error
        super().seal()

    def _fence_off(self, live: Sequence[GroupId]) -> None:
        self._results.fence(live)


PERMISSION_POLL_S = 0.5
PERMISSION_POLLS_MAX = 240
"""A worker that has lost sight of the log waits so often before its attempt has failed."""
_BY_SPARK = re.compile(r"part-(?P<number>\d{5,})-[0-9a-f-]{36}(?P<rest>[-_.].+)")
_NEW, _REPLACED = "result-", "replaced"
SUCCESS = "_SUCCESS"


@dataclass(slots=True)
class StageResult:
    """Both, for one peer of one task."""

    context: PluginContext
    parts: PartStore
    """Where the peers of the task write what the stage reads."""
    parts_of: Callable[[PluginContext], PartStore]
    """The parts in the job of a context."""
    notes: versions.Notes
    run: Callable[[StageRequest, StageRunner, float], None]
    """Runs a stage and publishes its result."""
    _after: tuple[JobId, ...] = field(default=(), init=False)

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called on every peer before it is ready, from a thread that may block: make sure that the
        result will hold the parts of the old job and of those before it."""
        self._after = versions.upgrade(self.notes, self.context.job, old)

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence the writers of the parts, also those of the old job: its peers may not know yet
        that it was killed."""
        self.parts.fence(live)
        for job in self._after[:1]:
            self.parts_of(replace(self.context, job=job)).fence(live)


def results_at(context: PluginContext, path: str, frame: str | None, appends: bool) -> StageResult:
    """Parts and results at the path of a task. Raises UserError: nothing can be there."""
    location = folder_at(context, path)
    notes = versions.Notes(folder_of(location, frame))
    if isinstance(location, Prefix):
        return _in_store(location, context, notes, appends)
    return _in_folder(location, context, notes, appends)


def _in_folder(
    location: Location, context: PluginContext, notes: versions.Notes, appends: bool
) -> StageResult:
    """Parts and results that Spark reads and writes where they are."""
    work = FolderWorkspace(
        location,
        context.job,
        context.permitted,
        watch=Watch(context.wanted, context.progress),
        appends=appends,
        run=run_name(context),
    )

    def parts_of(context: PluginContext) -> StageParts:
        folder, result = notes.where(context.job).local, result_of(location, context.job, appends)
        assert folder is not None, "the location is a folder"
        assert result.local is not None, "the location is a folder"
        return StageParts(folder, writer_of(context), result.local)

    def run(request: StageRequest, runner: StageRunner, timeout_s: float) -> None:
        run_folder_stage(work, parts.own, request, runner, timeout_s)

    parts = parts_of(context)
    return StageResult(context, parts, parts_of, notes, run)


def _in_store(
    location: Prefix, context: PluginContext, notes: versions.Notes, appends: bool
) -> StageResult:
    """Parts and results in a store, which executors read and write."""

    def parts_of(context: PluginContext) -> ObjectParts:
        folder = notes.where(context.job)
        assert isinstance(folder, Prefix), "it is in a store"
        return folder.staging(writer_of(context))

    def run(request: StageRequest, runner: StageRunner, timeout_s: float) -> None:
        run_object_stage(work, request, runner, timeout_s)

    parts = parts_of(context)
    result = result_of(location, context.job, appends)
    assert isinstance(result, Prefix), "it is in a store"
    work = ObjectWorkspace(location, context, parts, result.url, run_name(context))
    return StageResult(context, parts, parts_of, notes, run)


def wait_until_permitted(
    where: object,
    permitted: Callable[[], bool],
    wanted: Callable[[], bool],
    pause: Callable[[float], None],
) -> None:
    """The log may be away for a while; if this peer is replaced meanwhile, its staging goes.

    Raises:
        Fenced: the run is not wanted any more.
        Unavailable: it took too long.
    """
    for _ in range(PERMISSION_POLLS_MAX):
        if not wanted():
            raise not_wanted()
        if permitted():
            return
        pause(PERMISSION_POLL_S)
    raise Unavailable(f"{where}: this worker may not publish: it has lost sight of the log")


def not_wanted() -> Fenced:
    """What is raised by a run that nobody wants any more."""
    return Fenced("this worker was declared dead, or its task stopped, while its Spark stage ran")


class FolderWorkspace(msgspec.Struct, frozen=True):
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
        assert folder is not None, "a result in a store is of an ObjectWorkspace"
        return folder

    def permit(self, wanted: Callable[[], bool]) -> Callable[[], None]:
        """What returns when this worker may publish (`wait_until_permitted`)."""
        return lambda: wait_until_permitted(self.location, self.permitted, wanted, self.pause)


def run_folder_stage(
    work: FolderWorkspace,
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
        if not request.write.direct and is_result_of(work.result, work.job):
            return
        own = staging()
        with opened(own, ()) as held:

            def wanted() -> bool:
                return work.watch.wanted() and leads_to(own, held)

            if request.write.direct:
                watch, permit = Watch(wanted, work.watch.seen), work.permit(wanted)
                write_directly(request, work.location, work.job, runner, timeout_s, watch, permit)
            else:
                _run_in_folder(work, own, held, request, runner, timeout_s, wanted)
    except FileNotFoundError as error:
        raise not_wanted() from error
    except OSError as error:
        raise Unavailable(f"{work.location}: the result cannot be written: {error}") from error


def _run_in_folder(
    work: FolderWorkspace,
    own: Path,
    held: int,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
    wanted: Callable[[], bool],
) -> None:
    target = own / new_result_folder(held, work.result)
    filled = with_parts(request, work.location, work.job).written_to(str(target.resolve()))
    if any(frame.known for frame in filled.frames):
        runner(filled, timeout_s, Watch(wanted, work.watch.seen))
    else:  # No segment ever came, so nobody knows the columns: the result has no rows either.
        make_without_rows(target)
    # A worker that is fenced does not see its target either, and that is not the user's fault.
    if leads_to(own, held) and not target.is_dir():
        raise UserFunctionError(
            f"Spark at {request.master} has written the result to {target}, which this worker does "
            "not see: `path` must be on a volume that both share"
        )
    parts = sum(len(frame.parts) for frame in filled.frames)
    manifest: dict[str, object] = {"job": work.job, "stage": request.stage, "parts": parts}
    finish_folder(target, work.run, manifest)
    # Asked last, when all is durable: from here to the rename is the only time in which a worker
    # that is declared dead could still publish, and then the rename finds its directory gone.
    work.permit(wanted)()
    publish_folder(work.result, held, target.name)


class StageParts(DirectoryParts):
    """The parts of a stage; the directory of a writer may hold a result, too."""

    def __init__(self, directory: Path, writer: Writer, result: Path) -> None:
        super().__init__(directory, writer)
        self._result = result

    def _remove(self, folder: int, name: str) -> None:
        # Whoever removes the directory of a dead worker removes its only copy of the result with
        # it, unless that goes back first.
        put_back(f"{name}/{_REPLACED}", folder, self._result)
        super()._remove(folder, name)


def is_result_of(result: Path, job: JobId) -> bool:
    """Whether the result of this job stands."""
    try:
        manifest = json.loads((result / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError, *UNREADABLE):
        return False
    return isinstance(manifest, dict) and manifest.get("job") == job


def new_result_folder(held: int, result: Path) -> str:
    """A name in the staging directory for a new result; what earlier runs left there is gone."""
    put_back(_REPLACED, held, result)
    for name in os.listdir(held):
        if name.startswith(_NEW) or name == _REPLACED:
            remove_tree(held, name)
    # No other run has it: a server may go on with an earlier one, whose process was ended, and what
    # that still writes must not be in the result of this one.
    return f"{_NEW}{uuid.uuid4().hex[:12]}"


def make_without_rows(target: Path) -> None:
    """Make a result that has no rows."""
    target.mkdir()
    (target / "_SUCCESS").touch()


def finish_folder(target: Path, run: str, manifest: dict[str, object]) -> None:
    """Make what Spark has written a result, and durable.

    Args:
        run: how the names of its files begin.
    """
    _rename(target, run)
    _make_durable(target, manifest)


def publish_folder(result: Path, held: int, new: str) -> None:
    """The result of an earlier job steps aside just before, so that a reader finds the old one,
    for an instant none, then the new one; never a mixture."""
    if result.exists():
        os.rename(result, _REPLACED, dst_dir_fd=held)
    try:
        make_durable_directory(result.parent)
        # By the descriptor and not by the path of the directory: after a fence Spark may have made
        # the path again, but what the worker holds then leads nowhere, and the rename fails.
        os.rename(new, result, src_dir_fd=held)
    except OSError:
        put_back(_REPLACED, held, result)
        raise
    sync_directory(result.parent)
    remove_tree(held, _REPLACED)


def put_back(replaced: str, folder: int, result: Path) -> None:
    """A result that has stepped aside, unless there is none or another one stands. What cannot be
    put back now stays where it is, and is tried again."""
    with suppress(OSError):
        os.rename(replaced, result, src_dir_fd=folder)
        sync_directory(result.parent)


def _rename(target: Path, run: str) -> None:
    """Give the files of Spark names with the id of the job, as objects of a result have them. What
    does not have the names of Spark is left alone."""
    for path in list(target.rglob("part-*")):
        found = _BY_SPARK.fullmatch(path.name)
        if found is None:
            continue
        name = path.with_name(f"{run}-{found['number']}{found['rest']}")
        if not name.exists():
            path.rename(name)


def _make_durable(target: Path, manifest: dict[str, object]) -> None:
    for checksum in target.rglob(".*.crc"):  # Hadoop's own, which no other reader knows
        checksum.unlink()
    (target / MANIFEST).write_text(json.dumps(manifest) + "\n")
    for path in sorted(target.rglob("*")):
        if path.is_dir():
            sync_directory(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_directory(target)


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
        """Returns when this worker may publish (`wait_until_permitted`)."""
        context = self.context
        wait_until_permitted(self.location, context.permitted, context.wanted, self.pause)


def run_object_stage(
    work: ObjectWorkspace, request: StageRequest, runner: StageRunner, timeout_s: float
) -> None:
    """Run a stage over parts in an object store, as `run_folder_stage` does in a folder.

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
            _run_over_objects(
                work, result, with_parts(request, work.location, job), runner, timeout_s, watch
            )
        result.clean_up()
    except OSError as error:
        raise Unavailable(f"{work.location}: {error.strerror or error}") from error


def _run_over_objects(
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
        _complete_uploads(work, result, staged)
    finally:
        # Aborts the uploads of this run that were not completed, so that nobody pays for them; of
        # those that were there is nothing left to abort.
        work.fenced.abandon(run)
    parts = sum(len(frame.parts) for frame in request.frames)
    files = tuple(each.name for each in staged)
    result.decide(ResultManifest(work.context.job, request.stage, parts, run, files, stale))


def _complete_uploads(
    work: ObjectWorkspace, result: ObjectResult, staged: Iterable[Staged]
) -> None:
    work.permit()
    work.fenced.complete(
        {"key": (result.url / each.name).key, "upload": each.upload, "tags": each.tags}
        for each in staged
    )


@prepared
class ResultManifest(msgspec.Struct, frozen=True):
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


class ObjectResult:
    """The result of one task, as one peer that runs its stage sees it."""

    def __init__(self, url: ObjectUrl) -> None:
        self.url = url
        self._bucket = Bucket(url.bucket)
        self._key = (url / MANIFEST).key
        self._before: ObjectBytes | None = None
        self._standing: ResultManifest | None = None

    def look(self) -> None:
        """Read which result stands."""
        # Kept as it was read: what `decide` writes later is on the condition that this still is
        # the newest, so of two runs that began alike one finds that the other was first.
        self._before = self._bucket.get(self._key)
        self._standing = _manifest(self._before)

    @property
    def job(self) -> str | None:
        """The job whose result stands; None if there is none."""
        return None if self._standing is None else self._standing.job

    def names(self) -> tuple[str, ...]:
        """Names of the files that are there."""
        prefix = f"{self.url.key}/"
        found = (each.key.removeprefix(prefix) for each in self._bucket.list(prefix))
        return tuple(each for each in found if each not in (MANIFEST, SUCCESS))

    def decide(self, mine: ResultManifest) -> None:
        """Make this the result that stands, or keep that of another run of this job."""
        try:
            self._bucket.put(self._key, msgspec.json.encode(mine), only_if(self._before))
            self._standing = mine
        except (ConditionFailed, ObjectMissing) as error:
            standing = _manifest(self._bucket.get(self._key))
            if standing is not None and standing.run == mine.run:
                self._standing = mine  # the answer to an earlier try of this very request was lost
                return
            self._remove(mine.files)
            if standing is None or standing.job != mine.job:
                raise Unavailable(
                    f"{self.url}: another job has put its result there meanwhile; let one job at a "
                    "time write to a path"
                ) from error
            self._standing = standing

    def clean_up(self) -> None:
        """What is left to do once it is decided; may be done again."""
        assert self._standing is not None, "a result was decided"
        self._remove(self._standing.replaces)
        self._bucket.put((self.url / SUCCESS).key, b"")

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._bucket.delete((self.url / name).key)


def _manifest(found: ObjectBytes | None) -> ResultManifest | None:
    """None also for what is no manifest of this version: it is replaced."""
    try:
        return msgspec.json.decode(found.data, type=ResultManifest) if found else None
    except UNREADABLE:
        return None
