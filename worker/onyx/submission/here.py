"""What a job names that is not on this machine, and what lies where it writes: before, and after it
has ended early.

A mistake in these costs a new user most: of a package that is not installed only a worker would
say so, of a wrong path too, and a second run into a folder would double its rows in silence. So
`onyx run` asks here before anything starts, and refuses; `onyx validate` warns, because a job may
be meant for a cluster, where other things are installed and lie elsewhere.

The workers of a cluster look at the same when they build a plugin. Rejected: to build the plugins
here, which would say the same with Arrow loaded in a process that only watches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from onyx.base.on_demand import install, is_here
from onyx.base.seams import SystemClock
from onyx.errors import Problem, Unavailable, UserError
from onyx.ids import JobId
from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import built_in
from onyx.model.report import at, listed
from onyx.plugins.files.options import FilesInputOptions, FilesOutputOptions
from onyx.plugins.options import check_options, own_options
from onyx.plugins.parts.folders import parts_in, whose
from onyx.plugins.parts.offsets import Part
from onyx.plugins.starting import read_start
from onyx.replica.spec import SPARK_TAG
from onyx.replica.spec_of_job import spec_of
from onyx.rights import rights_of
from onyx.settings import Settings
from onyx.spark.session.masters import tags_of
from onyx.storage.files import InputFiles
from onyx.storage.opening import absolute, is_remote, location_of
from onyx.submission.job_checks import texts

MODULES: Mapping[str, tuple[str, ...]] = {
    "http": ("urllib3",), "kafka": ("confluent_kafka",), "nats": ("nats",), "redis": ("redis",),
    "s3": ("botocore",), "spark": ("pyspark",), "sql": ("sqlalchemy",),
}  # fmt: skip
"""What Python imports of an extra."""
_SERVER = ("uvicorn", "httptools")
"""What takes requests over HTTP, of the extra `http`."""
FILES = "files"
COUNTED_BYTES_MAX = 67_108_864
"""What is read of parts to count their rows."""


def why_not_here(
    job: Job,
    settings: Settings,
    file: Path | None = None,
    replaces: bool = False,
    resumes: bool = False,
) -> list[Problem]:
    """Why a job cannot begin on this machine.

    Args:
        job: that is to run.
        settings: of its workers.
        file: with the job.
        replaces: whether parts of other jobs go from the folders of its outputs, if it can begin.
        resumes: whether it has begun before.

    Raises:
        UserError: parts are to go, and the job reads them.
    """
    places = Places(job, settings, file)
    sql = (each for path, _ in texts(job) for each in _package(path, "", "sql", ("duckdb",)))
    problems = [*_packages(job), *sql, *_tags(job, settings), *places.wrong()]
    occupied = [] if resumes else places.occupied()
    if not replaces:
        return [*problems, *(each.problem for each in occupied)]
    if not problems:
        places.clear(occupied)
    return problems


def not_here(job: Job, settings: Settings, file: Path | None = None) -> list[Problem]:
    """What `onyx run` would refuse of a job, as far as it can be known without a server."""
    places = Places(job, settings, file, runs=False)
    occupied = (each.problem for each in places.occupied())
    return [*_packages(job), *places.wrong(), *occupied, *places.unread()]


def nothing_since(job: Job, settings: Settings) -> list[Problem]:
    """Inputs that would read nothing in silence: all their files are older than `startFrom`. That
    may be meant, as of a job that runs each hour, so it is worth a warning."""
    return Places(job, settings).unread()


class PublishedRows(msgspec.Struct, frozen=True):
    """What a job has published in the folder of an output when it ends early."""

    task: str
    named: str
    """The folder as the job names it."""
    parts: int
    rows: int | None
    """None: they are not counted, as of compressed parts and in a bucket."""

    def __str__(self) -> str:
        """In words: `192 rows in out`."""
        count, what = (self.parts, "part") if self.rows is None else (self.rows, "row")
        amount = f"{count:,} {what}{'' if count == 1 else 's'}" if self.parts else "nothing"
        return f"{amount} in {self.named}"


def published(job: Job, settings: Settings, id: JobId) -> list[PublishedRows]:
    """What a job on peers has published, by output of files that can be looked at from here."""
    if job.engine == "spark":  # its outputs are published together, with the document of a result
        return []
    places = Places(job, settings)
    outputs = (each for each in job.catalog if (each.type, each.plugin) == ("output", FILES))
    return [found for each in outputs if (found := places.published(each, id)) is not None]


def _rows(parts: Sequence[Part]) -> int | None:
    plain = all(each.path.endswith(".jsonl") and not is_remote(each.path) for each in parts)
    if not plain or sum(each.size_bytes for each in parts) > COUNTED_BYTES_MAX:
        return None
    try:
        return sum(Path(each.path).read_bytes().count(b"\n") for each in parts)
    except OSError:
        return None


def _packages(job: Job) -> Iterator[Problem]:
    for index, entry in enumerate(job.catalog):
        path = at("spec.catalog", index)
        extra = _extra(entry)
        modules = _SERVER if (entry.type, entry.plugin) == ("input", "http") else MODULES.get(extra)
        key = "sparkStage" if entry.spark_stage else "sparkSql" if entry.spark_sql else "plugin"
        yield from _package(at(path, key), "", extra, modules or ())
        where = next((each for each in _paths(entry) if is_remote(each)), None)
        if where is not None:
            what = f"is {where}, which "
            yield from _package(at(at(path, "options"), "path"), what, "s3", MODULES["s3"])
    if job.engine == "spark":
        yield from _package("spec.engine", "is spark, which ", "spark", MODULES["spark"])
    for index, window in enumerate(job.windows):
        if window.engine == "spark" and job.engine != "spark":
            path = at(at("spec.windows", index), "engine")
            yield from _package(path, "is spark, which ", "spark", MODULES["spark"])


def _extra(entry: CatalogEntry) -> str:
    if entry.stage is not None:
        return SPARK_TAG
    row = built_in(entry.type, entry.plugin)
    return "http" if row is not None and row.name == "http" else "" if row is None else row.extra


def _package(path: str, what: str, extra: str, modules: Sequence[str]) -> Iterator[Problem]:
    absent = [each for each in modules if not is_here(each)]
    if absent:
        yield Problem(path, f"{what}needs {absent[0]}, which is not installed here", install(extra))


def _tags(job: Job, settings: Settings) -> Iterator[Problem]:
    """That PySpark is not installed is said of packages."""
    offered = (*tags_of(settings), *(() if is_here("pyspark") else (SPARK_TAG,)))
    places = {each.name: at("spec.catalog", index) for index, each in enumerate(job.catalog)}
    for task in spec_of(job).tasks:
        lacks = [each for each in task.required_tags if each not in offered]
        if lacks:
            path = at(places[task.name], "requiredTags") if task.name in places else "spec.engine"
            what = f"has {listed(lacks)}, which no worker here offers"
            variable = "ONYX_SPARK=true" if SPARK_TAG in lacks else f"ONYX_TAGS={','.join(lacks)}"
            yield Problem(path, f"{what}: it would wait for ever", f"set {variable}")


def _paths(entry: CatalogEntry) -> list[str]:
    """The files or folders that a plugin reads or writes."""
    of_files = entry.plugin in (FILES, "spark") or entry.stage is not None
    found = own_options(entry).get("path") if of_files else None
    return [
        each for each in (found if isinstance(found, list) else [found]) if isinstance(each, str)
    ]


class Occupied(msgspec.Struct, frozen=True):
    """The folder of an output in which parts of other jobs lie."""

    path: str
    """The key of the manifest."""
    task: str
    named: str
    """The folder as the job names it."""
    folder: str
    parts: tuple[Part, ...]

    @property
    def problem(self) -> Problem:
        """Why rows would be there twice."""
        count = len(self.parts)
        parts = "a part of another run lies" if count == 1 else f"{count:,} parts of other runs lie"
        what = f"is {self.named}, where {parts}: the rows of both would be there"
        hint = "--replace removes the others, existing: append keeps them; or name another folder"
        return Problem(self.path, what, hint)

    def clear(self) -> None:
        """Remove the parts of the other jobs."""
        location = location_of(self.folder)
        for part in self.parts:
            location.delete(part.path.rpartition("/")[2])


class Places:
    """Where a job reads and writes files, as this process sees it."""

    def __init__(
        self, job: Job, settings: Settings, file: Path | None = None, runs: bool = True
    ) -> None:
        """Args:
        runs: whether the job is going to run here; else object stores are not asked, nor is
            looked at what the owner of a worker allows.
        """
        self._job = job
        self._base = settings.data_dir
        self._rights = rights_of(settings) if runs else None
        self._beside = None if file is None else file.absolute().parent
        self._files = InputFiles()

    def wrong(self) -> list[Problem]:
        """Paths of inputs and tables that match no file, and of outputs where nothing can be
        written."""
        return [
            Problem(_key(index), what, hint)
            for index, entry in enumerate(self._job.catalog)
            for path in _paths(entry)
            for what, hint in self._wrong(entry, path)
        ]

    def _wrong(self, entry: CatalogEntry, path: str) -> Iterator[tuple[str, str]]:
        there = absolute(path, self._base)
        why = None if self._rights is None or is_remote(path) else self._rights.why_not_path(there)
        if why is not None:
            yield f"is refused: {why}", ""
        elif entry.type != "output" and entry.plugin == FILES and self._is_seen(path):
            yield from self._unmatched(path, there)
        elif entry.type == "output" and not is_remote(path):
            yield from _unwritable(path, there)

    def _is_seen(self, path: str) -> bool:
        """Whether it may be looked at from here."""
        return not is_remote(path) or (self._rights is not None and is_here("botocore"))

    def _unmatched(self, path: str, there: str) -> Iterator[tuple[str, str]]:
        try:
            if not self._files.matching(there):
                yield f"is {path}, which matches no file here", self._elsewhere(path)
        except UserError as error:
            yield str(error), ""
        except Unavailable:
            return  # workers wait for a store

    def _elsewhere(self, path: str) -> str:
        if is_remote(path) or os.path.isabs(path):
            return ""
        counted = f"relative paths count from {self._base or os.getcwd()}"
        if self._beside and self._files.matching(os.path.join(self._beside, path)):
            return f"{counted}, and it lies beside the job: go to {self._beside}"
        return counted

    def occupied(self) -> list[Occupied]:
        """Outputs in whose folders parts of other jobs lie, unless these may stay there
        (`existing: append`). A job that upgrades one goes on in the folder of that."""
        found = dict[str, Occupied]()
        for index, entry in enumerate(() if self._job.upgrade else self._job.catalog):
            if (entry.type, entry.plugin) != ("output", FILES):
                continue
            options, _ = check_options(own_options(entry), FilesOutputOptions)
            if options is None or options.existing == "append":
                continue
            there = absolute(options.path, self._base)
            if there not in found and (parts := self._parts(there)):
                found[there] = Occupied(_key(index), entry.name, options.path, there, parts)
        return [*found.values()]

    def published(self, entry: CatalogEntry, id: JobId) -> PublishedRows | None:
        """What the job of an id has in the folder of an output; None: that cannot be seen here."""
        options, _ = check_options(own_options(entry), FilesOutputOptions)
        if options is None or not self._is_seen(options.path):
            return None
        mine = f"part-{whose(entry.name, id)}--"
        there = self._parts(absolute(options.path, self._base))
        parts = [each for each in there if each.path.rpartition("/")[2].startswith(mine)]
        return PublishedRows(entry.name, options.path, len(parts), _rows(parts))

    def _parts(self, folder: str) -> tuple[Part, ...]:
        """The parts in a folder; of one that cannot be listed, workers say so."""
        if not self._is_seen(folder) or not (is_remote(folder) or os.path.isdir(folder)):
            return ()
        try:
            return tuple(parts_in(folder, lambda _: True, ""))
        except (UserError, Unavailable):
            return ()

    def read_by(self, entry: CatalogEntry) -> list[str]:
        """The files that a task reads, as far as they may be looked at from here."""
        if entry.type == "output" or entry.plugin != FILES:
            return []
        seen = (absolute(each, self._base) for each in _paths(entry) if self._is_seen(each))
        return [path for each in seen for path in self._files.matching(each)]

    def sizes_bytes(self) -> dict[str, int]:
        """How large the files are that inputs read, as far as they can be looked at."""
        found = dict[str, int]()
        for entry in self._job.catalog:
            if (entry.type, entry.plugin) != ("input", FILES):
                continue
            for path in filter(self._is_seen, _paths(entry)):
                with suppress(UserError, Unavailable):
                    found |= self._files.sizes_bytes(absolute(path, self._base))
        return found

    def unread(self) -> list[Problem]:
        """Inputs with files of which none was modified since the time of `startFrom`. A job that
        upgrades one goes on where that was."""
        found, now_ms = list[Problem](), SystemClock().wall_ms()
        for index, entry in enumerate(() if self._job.upgrade else self._job.catalog):
            if entry.type == "output" or entry.plugin != FILES:
                continue
            options, _ = check_options(own_options(entry), FilesInputOptions)
            since_ms = None if options is None else read_start(options.start_from).since_ms(now_ms)
            if since_ms is None or not self._all_before(since_ms, entry):
                continue
            since = datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(timespec="seconds")
            what = f"leaves nothing to read: no file was modified since {since}"
            path = at(at(at("spec.catalog", index), "options"), "startFrom")
            found.append(
                Problem(
                    path, what, "give an earlier time: it is that of files, not of what is in them"
                )
            )
        return found

    def _all_before(self, since_ms: int, entry: CatalogEntry) -> bool:
        """Whether there are files, all older; not of what cannot be looked at."""
        try:
            files = self.read_by(entry)
            return bool(files) and all(self._files.modified_ms(each) < since_ms for each in files)
        except (UserError, Unavailable):
            return False

    def clear(self, occupied: Sequence[Occupied]) -> None:
        """Remove what lies there of other jobs.

        Raises:
            UserError: this job reads some of it.
        """
        read = {_real(each) for entry in self._job.catalog for each in self.read_by(entry)}
        for each in occupied:
            mine = next((part.path for part in each.parts if _real(part.path) in read), None)
            if mine is not None:
                raise UserError(
                    f"job {self._job.name} reads {mine}, so it is not removed from the folder of "
                    f"task {each.task}: name another folder there"
                )
        for each in occupied:
            each.clear()


def _unwritable(path: str, there: str) -> Iterator[tuple[str, str]]:
    """Why no folder can be made there, or no part in it: a worker would try for ever."""
    places = (Path(there), *Path(there).parents)
    found = next((each for each in places if os.path.exists(each)), None)
    if found is None:
        return
    which = "which" if found == Path(there) else f"and {found}"
    if not found.is_dir():
        yield f"is {path}, {which} is a file", "name a folder: parts are written in it"
    elif not os.access(found, os.W_OK | os.X_OK):
        hint = "name another folder, or give the user of this process the right to write there"
        yield f"is {path}, {which} is not writable", hint


def _real(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)


def _key(index: int) -> str:
    return at(at(at("spec.catalog", index), "options"), "path")
