"""What of one job lies beside the log, as it was at one moment, while the job runs.

A copy is right if it could have been found after the death of all workers. Each log is one by
itself: chunks are never changed, so what is listed of it without a gap is what it was. What must
fit together are frontiers and logs:

* What is below a frontier is in the logs: frontiers are read before the logs are listed.
* The ids that a log has forgotten are below the frontiers: they forget below *stored* frontiers.
  So these are read once more behind the listing, and if one was stored meanwhile, all is looked at
  again.
* Where a task with state feeds another one, the first one's log has the frontiers of the second,
  and one listing is of no moment. So it is listed twice, until both are the same, and likewise
  where the parts of an output are to be those that its log has committed.
* Numbers of partitions, allocation versions, what is exhausted and sealed are the job's record in
  the replica. It is the same before and behind, and nobody who takes over writes a log before he
  has changed it.

A busy job may never be quiet for as long as a listing takes. Its inputs are paused then, and what
is in flight arrives, or stands still. Whether it comes to rest does not matter: a job in which one
segment is stuck is quiet too.

Chunks that nobody needs any more are deleted meanwhile: who finds one gone begins again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
from msgspec import field
from msgspec.structs import replace

from onyx.backup.place import BackedUpJob, WrittenParts
from onyx.codec.values import decode_records
from onyx.errors import UserError
from onyx.flow.groups.keys import SHARDS
from onyx.ids import NO_POSITION, JobId
from onyx.journal.logs import PartitionFolder
from onyx.keystate.records import StagedOutput
from onyx.log import documents
from onyx.log.interface import Document, LogReader
from onyx.model.job import Job
from onyx.model.parsing.mapping import stored_job
from onyx.model.plugins import keeps_parts, makes_one_result
from onyx.model.workflow import loop_of, stateful_tasks
from onyx.plugins.parts.folders import NotThere, parts_in, whose
from onyx.plugins.protocol import Token
from onyx.replica.jobs import is_collected
from onyx.replica.state import NOTHING, JobRecord, Replica
from onyx.settings import Settings
from onyx.spark.driver.committed import committed
from onyx.state.chunks import ChunkReader, StateChunkKind
from onyx.state.local.scratch import bytes_of
from onyx.state.location import is_shared, open_store, state_location
from onyx.state.names import TaskFolder
from onyx.storage.fenced_log import NOTE, Listed, note_data
from onyx.storage.interface import ListedFile
from onyx.storage.opening import absolute
from onyx.storage.sealed_folders import SavedFile

THREADS = 16
_FORMS = tuple(
    (
        re.compile(rf"(.+/{each.KEY})(?:{re.escape(NOTE)}|/(\d{{{each.DIGITS}}})({each.MARK})?)"),
        each,
    )
    for each in (TaskFolder, PartitionFolder)
)
Put = Callable[[str, bytes], SavedFile]


class Moved(Exception):
    """Something has changed while it was looked at."""


class JobPoint(NamedTuple):
    """A job at one moment."""

    record: JobRecord
    files: BackedUpJob
    documents: Mapping[str, Document]


class SeenJob(NamedTuple):
    """A job at one moment, before its files are copied."""

    id: JobId
    record: JobRecord
    documents: Mapping[str, Document]
    listed: Sequence[ListedFile]
    parts: Sequence[tuple[str, str, Sequence[str]]]
    """What outputs under exactly-once have written: the task, the path as it says it, the names."""


class LogCut(msgspec.Struct):
    """What a listing says of a log, and what of it is taken."""

    name: str
    form: type[TaskFolder | PartitionFolder]
    listed: Listed = field(default_factory=Listed)

    @property
    def first(self) -> int:
        """The number at which reading begins; 0 without a snapshot or summary."""
        return max(self.listed.marks, default=0)

    def chunks(self) -> list[int]:
        """The numbers of those that are taken: up to the first gap, as one may have been made while
        a folder was read.

        Raises:
            Moved: what the log begins with is gone.
        """
        first, opened = self.first, [0] if self.listed.opened else []
        run = sorted(seq for seq in self.listed.sizes if seq and seq >= first)
        # A summary stands for its chunk too; a snapshot begins with its own.
        begins = (first,) if self.form is TaskFolder else (first, first + 1)
        if first and (run or self.form is TaskFolder) and run[:1] not in [[seq] for seq in begins]:
            raise Moved(self.name)
        gap = next((at for at, seq in enumerate(run) if seq - run[0] != at), len(run))
        return opened + run[:gap]

    @property
    def last(self) -> int:
        """The number of the last one."""
        return max([self.first, *self.chunks()])

    def names(self) -> Iterator[str]:
        """The names of what is taken."""
        yield from (f"{self.name}/{seq:0{self.form.DIGITS}d}" for seq in self.chunks())
        if self.first:
            yield f"{self.name}/{self.first:0{self.form.DIGITS}d}{self.form.MARK}"
        if self.listed.noted:
            yield f"{self.name}{NOTE}"


def comparable(record: JobRecord) -> JobRecord:
    """A record without a pause, which backups make themselves."""
    if record.run is None:
        return record
    return replace(record, run=replace(record.run, paused=NO_POSITION, rested=NOTHING))


class JobCapture:
    """Copies what lies beside the log of jobs. Blocks.

    Args:
        put: stores a file; from any thread.
        say: hears what is not in the backup, and why.
    """

    def __init__(
        self, log: LogReader, settings: Settings, put: Put, say: Callable[[str], None]
    ) -> None:
        self._log = log
        self._settings = settings
        self._location = state_location(settings)
        self._store = open_store(self._location, settings.state.group_access)
        self._put = put
        self._say = say

    def look(self, replica: Replica, job: JobId) -> SeenJob:
        """The job as it is now. That its record is as in this replica is for the caller to look.

        Raises:
            Moved: it has changed meanwhile.
            UserError: its state is not where the settings say.
        """
        record, manifest = replica.records[job], None
        if record.spec.digest:
            manifest = stored_job(self._log.get_chunk(record.spec.digest), job)
        found = self._documents(job)
        # Of a job that has completed, a worker removes the state, and nobody needs it.
        listed = () if is_collected(replica, job) else self._listed(job)
        parts = [] if manifest is None else self._parts(job, manifest)
        coupled = listed and manifest is not None and _is_coupled(manifest)
        if coupled and _ends(listed) != _ends(self._listed(job)):
            raise Moved(job)
        if self._documents(job) != found:
            raise Moved(job)
        return SeenJob(job, comparable(record), found, listed, parts)

    def copy(self, seen: SeenJob) -> JobPoint:
        """Copy what was seen, for as long as that takes. Raises Moved: some of it is gone."""
        job = seen.id
        files, committed = self._copied(job, seen.listed, [task for task, _, _ in seen.parts])
        written = [
            WrittenParts(task, path, sorted({*names, *committed[task]}))
            for task, path, names in seen.parts
        ]
        return JobPoint(seen.record, BackedUpJob(job, files, written), seen.documents)

    def _documents(self, job: JobId) -> dict[str, Document]:
        folder = documents.frontiers(job)
        paths = [f"{folder}/{name}" for name in self._log.list_documents(folder)]
        paths += [documents.location(job), documents.committed_query(job)]
        # At once, as the more partitions there are, the sooner one of them has moved.
        with ThreadPoolExecutor(THREADS, "onyx-backup") as threads:
            found = zip(paths, threads.map(self._log.get_document, paths), strict=True)
            return {path: document for path, document in found if document is not None}

    def _listed(self, job: JobId) -> Sequence[ListedFile]:
        if self._log.get_document(documents.location(job)) is None:
            return ()
        if not is_shared(self._store, self._log, job):
            raise UserError(
                f"the state of job {job} is not in {self._location}: set ONYX_STATE_URL to what "
                "workers have, and see that this machine has the same volume"
            )
        return self._store.list(f"{job}/")

    # --- what is taken ----------------------------------------------------------------------------

    def _copied(
        self, job: JobId, listed: Sequence[ListedFile], outputs: Collection[str]
    ) -> tuple[list[SavedFile], dict[str, list[str]]]:
        """The files, and for each of these outputs the parts that its logs have committed since
        their snapshots."""
        logs, others = cut_logs(listed)
        ends = {f"{log}{NOTE}": cut.last for log, cut in logs.items()}
        names = [*others, *(name for cut in logs.values() for name in cut.names())]
        committed: dict[str, list[str]] = {task: [] for task in outputs}

        def copy(name: str) -> SavedFile:
            data = self._store.read(name)
            if data is None:
                raise Moved(name)
            _, task, inner = name.split("/", 2) if name.count("/") > 1 else (job, "", "")
            if name in ends:
                data = note_data(min(int(data), ends[name]))
            elif task in committed and (part := _staged_part(job, task, inner, data)):
                committed[task].append(part)
            return self._put(name, data)

        with ThreadPoolExecutor(THREADS, "onyx-backup") as threads:
            return list(threads.map(copy, sorted(names))), committed

    def _parts(self, job: JobId, manifest: Job) -> list[tuple[str, str, list[str]]]:
        """The parts that outputs have written, each segment once: the task, the path as it says it,
        the names. A query has committed all of its last micro-batch, and may not have published
        it."""
        query = committed(self._log, job) if manifest.engine == "spark" else None
        found = []
        for entry in manifest.catalog:
            path = entry.options.get("path")
            if not _commits_parts(manifest, entry.type, entry.plugin) or not isinstance(path, str):
                continue
            folder, own = absolute(path, self._settings.data_dir), whose(entry.name, job)
            try:
                parts = parts_in(folder, own.__eq__, f"job {job}, output {entry.name}")
                names = [each.path.rpartition("/")[2] for each in parts]
                result = None if query is None else query[0].outputs.get(entry.name)
                names += map(_name_of, () if result is None else result.tokens)
                found.append((entry.name, path, names))
            except NotThere as error:
                self._say(f"{error}. What it writes from now on is there twice after a restore")
        return found


def cut_logs(listed: Iterable[ListedFile]) -> tuple[dict[str, LogCut], list[str]]:
    """The logs that are listed, and all other files."""
    logs, others = dict[str, LogCut](), list[str]()
    for name, size_bytes in listed:
        forms = ((form.fullmatch(name), folder) for form, folder in _FORMS)
        match, folder = next(((m, each) for m, each in forms if m), (None, TaskFolder))
        if match is None:
            others.append(name)
            continue
        log = logs.setdefault(match[1], LogCut(match[1], folder)).listed
        if match[2] is None:
            log.noted = True
        elif match[3] is not None:
            log.marks.append(int(match[2]))
        else:
            log.sizes[int(match[2])] = size_bytes
    return logs, others


def _ends(listed: Iterable[ListedFile]) -> dict[str, tuple[int, int]]:
    """How far the logs of tasks are."""
    logs = cut_logs(listed)[0].values()
    return {each.name: (each.first, each.last) for each in logs if each.form is TaskFolder}


def _staged_part(job: JobId, task: str, name: str, data: bytes) -> str | None:
    """The part that a chunk commits, if it does; `name` is that of the file in the folder."""
    log, _, seq = name.rpartition("/")
    if not seq.isdecimal():
        return None
    folder = TaskFolder(job, task)
    chunk = ChunkReader(folder, folder.key_of(log), int(seq), data)
    changed = chunk.frame.kind is StateChunkKind.CHANGE
    for _, shard in chunk.shards({*range(SHARDS)}) if changed else ():
        records = decode_records(bytes_of(shard.records)) if shard.records else []
        for record in records:
            if isinstance(record, StagedOutput):
                return _name_of(record.token)
    return None


def _name_of(token: Token) -> str:
    """The part that is published by a token: a file of this name, or the object of a key."""
    return str(token.get("name") or token["key"]).rpartition("/")[2]


def _is_coupled(job: Job) -> bool:
    """Whether logs of the job must be of one moment."""
    tasks = stateful_tasks(job)
    return (
        job.guarantee == "exactly-once"
        or len(tasks) > 1
        or any(loop_of(job, task) for task in tasks)
    )


def _commits_parts(job: Job, kind: str, plugin: str | None) -> bool:
    commits = job.guarantee == "exactly-once" or job.engine == "spark"
    is_parts = keeps_parts(kind, plugin) and not makes_one_result(kind, plugin)
    return commits and kind == "output" and is_parts
