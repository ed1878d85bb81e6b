"""Run a stage over parts in an object store: copied to this machine, and its result copied back.

    <url>/parts/<job>/      Parquet parts, written by all peers of the task, and `_onyx.json`
                            (`versions`), by which those of earlier versions of the job are read
    <url>/result/           the result of the last job that finished, with `_onyx.json`

Spark needs libraries for object stores that its Python package lacks, and nothing is downloaded at
run time. So the worker's disk must have room for the parts and the result.

No store replaces many objects in one step. The files of a result are uploaded under names that no
other run uses, and published like parts, under the same fence. `_onyx.json` decides: it lists the
files of the result, and is written on the condition that it has not changed since the run began. So
of two runs one wins, and the other removes its files. `_onyx.json` also lists the files that it
replaces. The winner removes those, or the next peer that seals, if the winner dies. Nothing else is
ever removed, so a winner that wakes up late cannot reach the files of a later job.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onyx.errors import Unavailable
from onyx.ids import JobId
from onyx.objects.bucket import Bucket, Piece, only_if
from onyx.objects.connection import ConditionFailed, ObjectMissing
from onyx.objects.reader import ObjectFile
from onyx.objects.urls import ObjectUrl
from onyx.path_names import path_name
from onyx.plugins.parts.objects import ObjectPart, ObjectParts, published_at
from onyx.plugins.parts.writer import part_name
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import Frame, StageRequest, StageRunner, Watch
from onyx.spark.session.scratch import spark_scratch
from onyx.spark.stage import versions
from onyx.spark.stage.direct import DirectWrite, ObjectWriteNotes
from onyx.spark.stage.directory_stage import MANIFEST, wait_until_permitted
from onyx.spark.stage.frames import folder_of, result_of
from onyx.structs import prepared

COPY_BYTES = 8_388_608
"""Copied at a time."""
SUCCESS = "_SUCCESS"


@prepared
class Manifest(msgspec.Struct, frozen=True):
    """What is in `_onyx.json`."""

    job: str
    stage: str
    parts: int
    run: str
    """Of this attempt alone."""
    files: tuple[str, ...]
    """Names of the files of the result."""
    replaces: tuple[str, ...]
    """Names of files that are to go."""


@dataclass(frozen=True, slots=True)
class ObjectWorkplace:
    """Where one peer finds and puts the objects of one task of one job."""

    url: ObjectUrl
    context: PluginContext
    fenced: ObjectParts
    """Those that the stage reads; its result is staged under the same fence."""
    pause: Callable[[float], None] = time.sleep
    appends: bool = False
    """Whether the result is one of many."""

    @property
    def result(self) -> ObjectUrl:
        """Where the files of the result are."""
        return result_of(self.url, self.context.job, self.appends)

    @property
    def manifest(self) -> ObjectUrl:
        """The object that says which files are the result."""
        return self.result / MANIFEST


def parts_of(url: ObjectUrl, job: JobId) -> ObjectUrl:
    """Where the parts of a job are, below the URL of its task."""
    return url / "parts" / path_name(job, "the id of a job")


class ObjectNotes:
    """See `versions.Notes`."""

    def __init__(self, url: ObjectUrl) -> None:
        self._url = url

    def where(self, job: JobId) -> ObjectUrl:
        """Where the parts of a job are."""
        return parts_of(self._url, job)

    def read(self, job: JobId) -> bytes | None:
        """The note of a job; None if there is none."""
        found = Bucket(self._url.bucket).get(self._key(job))
        return found.data if found else None

    def write(self, job: JobId, note: bytes) -> None:
        """Write the note of a job."""
        Bucket(self._url.bucket).put(self._key(job), note)

    def _key(self, job: JobId) -> str:
        return (self.where(job) / versions.NOTE).key


def run_object_stage(
    place: ObjectWorkplace, request: StageRequest, runner: StageRunner, timeout_s: float
) -> None:
    """See `directory_stage.run_stage`, which does the same in a directory.

    Raises:
        UserFunctionError: the stage failed, with its message.
        UserError: the object store refuses.
        Unavailable: Spark, the store or the disk failed, or that is full; try again.
        Fenced: this incarnation was declared dead meanwhile, or the task is to stop.
    """
    try:
        bucket = Bucket(place.url.bucket)
        if request.write.direct:
            _run_direct(place, bucket, request, runner, timeout_s)
            return
        before = bucket.get(place.manifest.key)
        standing = _manifest(before)
        if standing is None or standing.job != place.context.job:
            with spark_scratch() as scratch:
                standing = _run(place, bucket, before, scratch, request, runner, timeout_s)
        _clean_up(place, bucket, standing)
    except OSError as error:
        raise Unavailable(
            f"{place.url}: parts and result are copied to {tempfile.gettempdir()}, and that "
            f"failed: {error.strerror or error}"
        ) from error


def _run(
    place: ObjectWorkplace,
    bucket: Bucket,
    before: Piece | None,
    scratch: Path,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
) -> Manifest:
    """The manifest that stands afterwards."""
    frames = _frames(place, bucket, scratch, request)
    target = scratch / "result"
    if any(frame.known for frame in frames):
        filled = msgspec.structs.replace(request, frames=frames, target=str(target))
        runner(filled, timeout_s, Watch(place.context.wanted, place.context.progress))
    # Otherwise no segment ever came, so nobody knows the columns: the result has no rows either.
    run = part_name(place.context, "")
    stale = [each for each in _names(place, bucket) if each not in (MANIFEST, SUCCESS)]
    files = {
        _named(f"{run}-{number}", path.relative_to(target)): path
        for number, path in enumerate(_files(target))
    }
    _publish(place, files)
    parts = sum(len(frame.parts) for frame in frames)
    manifest = Manifest(place.context.job, request.stage, parts, run, tuple(files), tuple(stale))
    return _decide(place, bucket, before, manifest)


def _run_direct(
    place: ObjectWorkplace,
    bucket: Bucket,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
) -> None:
    context = place.context

    def permit() -> None:
        wait_until_permitted(place.url, context.permitted, context.wanted, place.pause)

    write = DirectWrite(context.job, ObjectWriteNotes(place.url, context.job), permit)
    if not write.is_done():
        with spark_scratch() as scratch:
            frames = _frames(place, bucket, scratch, request)
            filled = msgspec.structs.replace(request, frames=frames)
            write.run(filled, runner, timeout_s, Watch(context.wanted, context.progress))


def _named(run: str, path: Path) -> str:
    """A file of a run, in the folder of its partition. Spark calls those of several partitions the
    same, but their names are those of uploads too."""
    return str(path.with_name(f"{run}-{path.name}"))


def _frames(
    place: ObjectWorkplace, bucket: Bucket, scratch: Path, request: StageRequest
) -> tuple[Frame, ...]:
    """Those of the request, with copies of their parts."""
    return tuple(
        msgspec.structs.replace(
            frame, parts=_copied_here(place, bucket, scratch / f"parts-{number}", frame.name)
        )
        for number, frame in enumerate(request.frames)
    )


def _copied_here(
    place: ObjectWorkplace, bucket: Bucket, folder: Path, frame: str | None
) -> tuple[str, ...]:
    folder.mkdir()
    copies = []
    notes = ObjectNotes(folder_of(place.url, frame))
    jobs = versions.whose(notes, place.context.job)
    for url in (url for job in jobs for url in published_at(notes.where(job), bucket, ".parquet")):
        copies.append(folder / url.key.rpartition("/")[2])
        with ObjectFile(bucket, url, {}) as source, copies[-1].open("wb") as file:
            shutil.copyfileobj(source, file, COPY_BYTES)
    return tuple(map(str, copies))


def _files(target: Path) -> Iterable[Path]:
    """What a reader of the result needs: not Hadoop's checksums and marks, nor empty files."""
    found = sorted(target.rglob("*")) if target.exists() else []
    return [each for each in found if each.is_file() and each.name[0] not in "._" and _size(each)]


def _size(path: Path) -> int:
    return path.stat().st_size


def _publish(place: ObjectWorkplace, files: Mapping[str, Path]) -> None:
    context = place.context
    staged: list[ObjectPart] = []
    try:
        for name, path in files.items():
            staged.append(place.fenced.create_at(place.result / name))
            _upload(path, staged[-1])
        wait_until_permitted(place.result, context.permitted, context.wanted, place.pause)
        for part in staged:
            part.publish()
    except BaseException:
        for part in staged:
            part.drop()
        raise


def _upload(path: Path, part: ObjectPart) -> None:
    with path.open("rb") as source:
        while piece := source.read(COPY_BYTES):
            part.file.write(piece)
            part.make_room()
    part.settle()


def _decide(
    place: ObjectWorkplace, bucket: Bucket, before: Piece | None, mine: Manifest
) -> Manifest:
    """The manifest that stands: ours, or that of another run of this job."""
    key = place.manifest.key
    try:
        bucket.put(key, msgspec.json.encode(mine), only_if(before))
        return mine
    except (ConditionFailed, ObjectMissing) as error:
        standing = _manifest(bucket.get(key))
        if standing is not None and standing.run == mine.run:
            return mine  # the answer to an earlier try of this very request was lost
        _remove(place, bucket, mine.files)
        if standing is None or standing.job != mine.job:
            raise Unavailable(
                f"{place.result}: another job has put its result there meanwhile; let one job at a "
                "time write to a path"
            ) from error
        return standing


def _clean_up(place: ObjectWorkplace, bucket: Bucket, standing: Manifest) -> None:
    """What is left to do once it is decided; may be done again."""
    _remove(place, bucket, standing.replaces)
    bucket.put((place.result / SUCCESS).key, b"")


def _remove(place: ObjectWorkplace, bucket: Bucket, names: Iterable[str]) -> None:
    for name in names:
        bucket.delete((place.result / name).key)


def _names(place: ObjectWorkplace, bucket: Bucket) -> list[str]:
    prefix = f"{place.result.key}/"
    return [found.key.removeprefix(prefix) for found in bucket.list(prefix)]


def _manifest(found: Piece | None) -> Manifest | None:
    """None also for what is no manifest of this version: it is replaced."""
    try:
        return msgspec.json.decode(found.data, type=Manifest) if found else None
    except msgspec.DecodeError:
        return None
