"""Run a stage over the parts of a job and publish its result by one rename.

    <path>/parts/<job>/      Parquet parts, written by all peers of the task, and `_onyx.json`
                             (`versions`), by which those of earlier versions of the job are read
    <path>/result/           the result of the last job that finished, with `_onyx.json`

The result is staged in the staging directory of this incarnation. Sealing may be repeated after any
crash: a result with the job's id is final, and any other is replaced.

Invariant: the worker renames the result, out of the staging directory that it holds open. Only the
worker knows whether it may have been declared dead. And Spark creates missing directories: after a
fence the path of a zombie may exist again, but not the directory that the zombie holds.

The result of an earlier job steps aside into that directory. If the new one does not come, because
the worker died in between or the rename failed, it goes back before the directory is removed.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onyx.errors import Fenced, Unavailable, UserFunctionError
from onyx.ids import JobId
from onyx.plugins.parts.stores import published
from onyx.plugins.protocol import SealProgress
from onyx.spark.child.request import Frame, StageRequest, StageRunner, Watch
from onyx.spark.stage import versions
from onyx.spark.stage.direct import DirectWrite, WriteNotes
from onyx.spark.stage.frames import folder_of, result_of
from onyx.spark.target import MANIFEST, SUFFIX
from onyx.storage.durable import make_durable_directory, sync_directory
from onyx.storage.interface import Location
from onyx.storage.rooted import leads_to, opened, remove_tree
from onyx.storage.staging.folder import DirectoryParts
from onyx.storage.staging.interface import Writer

PERMISSION_POLL_S = 0.5
PERMISSION_POLLS_MAX = 240
"""A worker that has lost sight of ZooKeeper waits so often before its attempt has failed."""
_BY_SPARK = re.compile(r"part-(?P<number>\d{5,})-[0-9a-f-]{36}(?P<rest>[-_.].+)")
_NEW, _REPLACED = "result-", "replaced"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where one peer finds and puts the files of one task of one job."""

    location: Location
    job: JobId
    permitted: Callable[[], bool]
    """False while this incarnation may have been declared dead."""
    pause: Callable[[float], None] = time.sleep
    wanted: Callable[[], bool] = lambda: True
    """False once the task is to stop: its job was killed or suspended, or it moves."""
    appends: bool = False
    """Whether the result is one of many."""
    seen: Callable[[SealProgress], None] = lambda _: None
    """Takes how far the stage is."""
    run: str = "part"
    """How the names of the files of a result begin."""

    @property
    def result(self) -> Path:
        """The directory of the result."""
        folder = result_of(self.location, self.job, self.appends).local
        assert folder is not None, "results in stores are those of object_stage"
        return folder


class StageParts(DirectoryParts):
    """The parts of a stage; the directory of a writer may hold a result, too."""

    def __init__(self, directory: Path, writer: Writer, result: Path) -> None:
        super().__init__(directory, writer)
        self._result = result

    def _remove(self, folder: int, name: str) -> None:
        _put_back(f"{name}/{_REPLACED}", folder, self._result)
        super()._remove(folder, name)


def is_done(work: Workspace) -> bool:
    """Whether the result of this job stands."""
    try:
        manifest = json.loads((work.result / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("job") == work.job


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
    run = _run_direct if request.write.direct else _run
    try:
        if run is _run and is_done(work):
            return
        own = staging()
        with opened(own, ()) as held:
            run(work, own, held, request, runner, timeout_s)
    except FileNotFoundError as error:
        raise _fenced() from error
    except OSError as error:
        raise Unavailable(f"{work.location}: the result cannot be written: {error}") from error


def _run(
    work: Workspace,
    own: Path,
    held: int,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
) -> None:
    def wanted() -> bool:
        return work.wanted() and leads_to(own, held)

    _put_back(_REPLACED, held, work.result)
    for name in os.listdir(held):
        if name.startswith(_NEW) or name == _REPLACED:
            remove_tree(held, name)
    # Of this run alone: a server may go on with an earlier one, whose process was ended, and what
    # that still writes must not be in the result of this one.
    target = own / f"{_NEW}{uuid.uuid4().hex[:12]}"
    frames = frames_of(work.location, work.job, request)
    filled = msgspec.structs.replace(request, frames=frames, target=str(target.resolve()))
    if any(frame.known for frame in frames):
        runner(filled, timeout_s, Watch(wanted, work.seen))
    else:  # No segment ever came, so nobody knows the columns: the result has no rows either.
        target.mkdir()
        (target / "_SUCCESS").touch()
    if leads_to(own, held) and not target.is_dir():
        raise UserFunctionError(
            f"Spark at {request.master} has written the result to {target}, which this worker does "
            "not see: `path` must be on a volume that both share"
        )
    parts = sum(len(frame.parts) for frame in frames)
    _rename(target, work.run)
    _make_durable(target, {"job": work.job, "stage": request.stage, "parts": parts})
    wait_until_permitted(work.location, work.permitted, wanted, work.pause)
    _publish(work, held, target.name)
    remove_tree(held, _REPLACED)


def _run_direct(
    work: Workspace,
    own: Path,
    held: int,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
) -> None:
    def wanted() -> bool:
        return work.wanted() and leads_to(own, held)

    def permit() -> None:
        wait_until_permitted(work.location, work.permitted, wanted, work.pause)

    write = DirectWrite(work.job, WriteNotes(work.location, work.job), permit)
    if not write.is_done():
        filled = msgspec.structs.replace(
            request, frames=frames_of(work.location, work.job, request)
        )
        write.run(filled, runner, timeout_s, Watch(wanted, work.seen))


def frames_of(location: Location, job: JobId, request: StageRequest) -> tuple[Frame, ...]:
    """The frames of the request, with their parts."""
    return tuple(
        msgspec.structs.replace(frame, parts=_parts(location, frame.name, job))
        for frame in request.frames
    )


def _parts(location: Location, frame: str | None, job: JobId) -> tuple[str, ...]:
    """The parts of a frame, those of earlier versions of the job first."""
    notes = versions.Notes(folder_of(location, frame))
    folders = [notes.where(each) for each in versions.whose(notes, job)]
    return tuple(each.path_of(name) for each in folders for name in published(each, SUFFIX))


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


def wait_until_permitted(
    where: object,
    permitted: Callable[[], bool],
    wanted: Callable[[], bool],
    pause: Callable[[float], None],
) -> None:
    """ZooKeeper may be away for a while; if this peer is replaced meanwhile, its staging goes.

    Raises:
        Fenced: the run is not wanted any more.
        Unavailable: it took too long.
    """
    for _ in range(PERMISSION_POLLS_MAX):
        if not wanted():
            raise _fenced()
        if permitted():
            return
        pause(PERMISSION_POLL_S)
    raise Unavailable(f"{where}: this worker may not publish: it has lost sight of ZooKeeper")


def _publish(work: Workspace, held: int, new: str) -> None:
    """The result of an earlier job steps aside just before, so that a reader finds the old one,
    for an instant none, then the new one; never a mixture."""
    if work.result.exists():
        os.rename(work.result, _REPLACED, dst_dir_fd=held)
    try:
        make_durable_directory(work.result.parent)
        os.rename(new, work.result, src_dir_fd=held)
    except OSError:
        _put_back(_REPLACED, held, work.result)
        raise
    sync_directory(work.result.parent)


def _put_back(replaced: str, folder: int, result: Path) -> None:
    """A result that has stepped aside, unless there is none or another one stands. What cannot be
    put back now stays where it is, and is tried again."""
    with suppress(OSError):
        os.rename(replaced, result, src_dir_fd=folder)
        sync_directory(result.parent)


def _fenced() -> Fenced:
    return Fenced("this worker was declared dead, or its task stopped, while its Spark stage ran")
