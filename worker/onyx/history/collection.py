"""Collection of garbage: old entries of the log, jobs that have ended, and what lies beside them.

`onyx gc` asks for it (`collect_all`), and the oldest worker does it by itself (`HistoryCollector`:
what is too old, and no more), both in the same steps. Each round looks what there is and does what
follows; nothing is remembered between rounds but the marks beside the log. So a collector may be
killed anywhere, and the next one goes on. That there is one at a time only spares work: each step
is right whoever else takes it.

1. What lies beside the log of jobs without a record is deleted. A listing comes first, then the
   replica: whoever has no record then had one no more when he was listed, or never.
2. Jobs that are old enough are forgotten (`Gc`). It stays known for long how they ended.
3. The log is trimmed: archived, if that is set, then the origin moves, then entries are deleted.
4. Chunks that nothing names are deleted (`LogReader.sweep_chunks` says why that is safe).

**What is old enough.** Entries carry no time, and no two clocks agree. So collectors note now and
then how far the log was at which time (`LogMark`), in a document beside the log. What stands at or
before a mark is at least as old as the mark: an age that is too small keeps something longer, and
nothing else follows from a clock that is wrong. What follows from the marks is pure.

**What lies beside the log.** A job on Spark may have left files: snapshots of DataFrames as inputs,
and bundles of stages in the middle. A document beside the log says where, from when the job is
forgotten until they are removed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from onyx.base.path_names import is_path_name
from onyx.base.structs import UNREADABLE, prepared
from onyx.errors import StateError, Unavailable, UserError
from onyx.history.archive import open_archive
from onyx.history.replicas import Replicas
from onyx.ids import NO_POSITION, JobId, Position
from onyx.log import documents
from onyx.log.interface import ClientLog, GroupLog, LogReader, Origin
from onyx.log.tenancy import Usage
from onyx.model.job import Job
from onyx.model.parsing.mapping import stored_job
from onyx.model.plugins import runs_spark
from onyx.replica import canonical
from onyx.replica.commands.gc import REMEMBERED_MAX, Gc
from onyx.replica.spec import SPARK_TAG
from onyx.replica.state import Replica
from onyx.settings import HistorySettings, Settings
from onyx.spark.result_files import remove_left
from onyx.submission import upgrades

logger = logging.getLogger("onyx.history")
FORGOTTEN_AT_ONCE = 500
"""Jobs named in one entry of the log, whose size is limited."""


class Collected(msgspec.Struct, frozen=True):
    """What a collection of garbage came to."""

    jobs: tuple[JobId, ...]
    """The jobs that are forgotten."""
    position: Position
    """The log starts after this one."""
    usage: Usage
    """What the tenancy held before."""


class HistoryCollector:
    """Collects what is too old, a round at a time; see `collection`. Blocks; one thread at a time.

    Args:
        log: for reading, and documents.
        append: writes a command; it need not wait.
        remove_state, remove_files: see `beside.sweep_documents`.
        now_ms: wall clock, in milliseconds.
    """

    def __init__(
        self,
        log: LogReader,
        replicas: Replicas,
        settings: HistorySettings,
        append: Callable[[Gc], None],
        remove_state: RemoveState,
        remove_files: RemoveFiles,
        now_ms: Callable[[], int],
    ) -> None:
        self._log = log
        self._replicas = replicas
        self._settings = settings
        self._append = append
        self._remove_state = remove_state
        self._remove_files = remove_files
        self._now_ms = now_ms
        self._id = str(uuid.uuid4())

    def round(self, known: Replica) -> Collected:
        """Collect what is to be collected now. `known` is any replica of this log.

        Raises:
            Unavailable: ZooKeeper does not answer; the rest is left to the next round.
            Fenced: this incarnation is dead.
        """
        replica = self._replicas.at(after=known)
        usage = self._log.usage()
        settings = crowded(replica, self._settings) if usage.is_crowded else self._settings
        now_ms = self._now_ms()
        marks = noted_marks(self._log, replica.version, now_ms, self._settings)
        clean = sweep_documents(
            self._log,
            lambda: self._replicas.at(after=replica),
            self._remove_state,
            self._remove_files,
        )
        taken, needed = upgrades.progress(self._log, replica)
        jobs = expired(replica, needed, marks, now_ms, settings)
        # An id is let go only when nothing is left of any job.
        keep = self._settings.remembered_max if clean else REMEMBERED_MAX
        note_left_files(self._log, replica, jobs)
        for command in forget(replica, jobs, taken, self._id, keep):
            self._append(command)
        position = self._trimmed(replica, marks, now_ms, settings)
        self._log.sweep_chunks(
            lambda: named(self._log, self._replicas.at(after=replica)), settings.chunk_age_s
        )
        return Collected(jobs, position, usage)

    def _trimmed(
        self, replica: Replica, marks: Sequence[LogMark], now_ms: int, settings: HistorySettings
    ) -> Position:
        """Trim the log, if it is time; the entry after which it starts."""
        origin = self._log.origin().position
        position = trim_to(origin, replica.version, marks, now_ms, settings)
        if position is None:
            return origin
        try:
            trim(self._log, self._replicas, position)
        except UserError as error:
            logger.warning("the log is not trimmed, because its archive refuses it: %s", error)
            return origin
        return position


def collector_of_worker(
    settings: Settings, log: GroupLog, remove_state: RemoveState, now_ms: Callable[[], int]
) -> HistoryCollector:
    """The collector of a worker that has these settings.

    Raises:
        UserError: the archive that they name cannot be opened.
    """
    return HistoryCollector(
        log,
        Replicas(log, settings.job_scheduler, open_archive(settings, log)),
        settings.history,
        lambda command: log.append([command]),
        remove_state,
        lambda path, name: remove_left(path, name, settings),
        now_ms,
    )


def collect_all(log: ClientLog, replicas: Replicas, append: Callable[[Gc], Position]) -> Collected:
    """Forget all jobs that have ended, with all that lies beside the log, and start the log from
    the current replica. Their ids are free again. An old job is kept until the job that upgrades it
    has carried over its state.

    Args:
        append: writes an entry to the log, in the name of who asks.

    Raises:
        Unavailable: ZooKeeper cannot be reached; call it again.
    """
    replica, usage = replicas.at(), log.usage()
    taken, needed = upgrades.progress(log, replica)
    ended = (*replica.completed_jobs, *replica.killed_jobs)
    jobs = tuple(job for job in ended if job not in needed)
    caller = str(uuid.uuid4())
    note_left_files(log, replica, jobs)
    for command in forget(replica, jobs, taken, caller, REMEMBERED_MAX):
        append(command)
    # A worker removes the state as soon as it reads the entry (`beside.RemoveState`).
    sweep_documents(log, lambda: replicas.at(after=replica), lambda job: None)
    replica = replicas.at(log.append(Gc(id=caller, jobs=())), after=replica)
    trim(log, replicas, replica.version)
    log.sweep_chunks(lambda: named(log, replicas.at(after=replica)), HistorySettings().chunk_age_s)
    return Collected(jobs, replica.version, usage)


def forget(
    replica: Replica, jobs: Sequence[JobId], carried_over: Sequence[JobId], caller: str, keep: int
) -> list[Gc]:
    """The entries that forget some jobs and keep in mind how `keep` jobs ended."""
    found = []
    for start in range(0, len(jobs), FORGOTTEN_AT_ONCE):
        some = tuple(jobs[start : start + FORGOTTEN_AT_ONCE])
        done = tuple(job for job in carried_over if replica.upgrades(job) in some)
        found.append(Gc(id=caller, jobs=some, carried_over=done, remember=keep))
    return found


def trim(log: LogReader, replicas: Replicas, position: Position) -> None:
    """Start the log from the replica at a position. What is trimmed is archived before, if there
    is an archive.

    Raises:
        Unavailable, UserError: the archive cannot be written; nothing is trimmed.
    """
    origin = log.origin()
    if origin.position >= position:
        return
    if replicas.archive is not None:
        replicas.archive.keep(origin, log.read(origin.position, position - origin.position))
    replica = replicas.at(position)
    if replica.version == position:
        log.collect(Origin(position, canonical.encode(replica)))


NEAR = 1 / 8
"""Marks may be so much of their age apart: a few dozen are enough for weeks."""
CROWDED_ENTRIES_MAX, CROWDED_CHUNK_AGE_S = 64, 60.0
"""What is kept when there is little room; a chunk that is about to be named needs seconds."""
TRIM_ENTRIES_MIN = 256
"""Fewer entries are not worth a new origin."""
MARKS = "history/marks"
"""The document with the marks."""


class LogMark(NamedTuple):
    """How far the log was at a time of a collector's clock."""

    position: Position
    wall_ms: int


def marked(
    marks: Sequence[LogMark], position: Position, now_ms: int, settings: HistorySettings
) -> tuple[LogMark, ...]:
    """The marks, oldest first, with one of now, without those that others make superfluous."""
    longest_ms = now_ms - int(1000 * max(settings.age_s, settings.killed_age_s))
    kept = [LogMark(position, now_ms)]
    newest_first = sorted((m for m in marks if m.wall_ms < now_ms), key=lambda m: -m.wall_ms)
    for index, mark in enumerate(newest_first):
        later = kept[-1]
        if later.wall_ms <= longest_ms:
            break
        following = newest_first[index + 1] if index + 1 < len(newest_first) else None
        gap_ms = later.wall_ms - (following or mark).wall_ms
        if following is None or gap_ms > NEAR * (now_ms - later.wall_ms) or len(kept) == 1:
            kept.append(mark)
    return tuple(reversed(kept))


def older_than(marks: Sequence[LogMark], now_ms: int, age_s: float) -> Position:
    """The last entry that is certainly so old; NO_POSITION if none is."""
    old = (mark.position for mark in marks if mark.wall_ms <= now_ms - 1000 * age_s)
    return max(old, default=NO_POSITION)


def expired(
    replica: Replica,
    needed: Collection[JobId],
    marks: Sequence[LogMark],
    now_ms: int,
    settings: HistorySettings,
) -> tuple[JobId, ...]:
    """The ended jobs to forget: those that are too old, and the oldest of too many. Those that
    completed go first: a job that was killed may still be upgraded.

    Args:
        needed: jobs whose state others still have to carry over; none of them goes.
    """
    found: list[JobId] = []
    left: list[JobId] = []
    for jobs, age_s in (
        (replica.completed_jobs, settings.age_s),
        (replica.killed_jobs, settings.killed_age_s),
    ):
        limit = older_than(marks, now_ms, age_s)
        for job in jobs:
            if job in needed:
                continue
            record = replica.records.get(job)
            is_old = record is None or record.ended <= limit
            (found if is_old else left).append(job)
    return (*found, *left[: max(0, len(left) - settings.jobs_max)])


def crowded(replica: Replica, settings: HistorySettings) -> HistorySettings:
    """What is kept of the past in a tenancy that is half full: the newer half of the jobs that have
    ended, and little else. The next round halves them again if that is not enough."""
    ended = len(replica.completed_jobs) + len(replica.killed_jobs)
    return replace(
        settings,
        jobs_max=min(settings.jobs_max, ended // 2),
        entries_max=min(settings.entries_max, CROWDED_ENTRIES_MAX),
        chunk_age_s=min(settings.chunk_age_s, CROWDED_CHUNK_AGE_S),
    )


def trim_to(
    origin: Position,
    head: Position,
    marks: Sequence[LogMark],
    now_ms: int,
    settings: HistorySettings,
) -> Position | None:
    """The last entry to trim; None if the log stays as it is. A log that is too long is cut to half
    of its limit, since each cut reads what it removes."""
    if head - origin > settings.entries_max:
        return Position(head - settings.entries_max // 2)
    old = older_than(marks, now_ms, settings.age_s)
    return old if old - origin >= TRIM_ENTRIES_MIN else None


def noted_marks(
    log: LogReader, version: Position, now_ms: int, settings: HistorySettings
) -> Sequence[LogMark]:
    """The marks before now; one of now is noted, if the last one is not of just now.

    Args:
        version: how far the log is now.
    """
    document = log.get_document(MARKS)
    marks = [] if document is None else _marks(document.data)
    new = marked(marks, version, now_ms, settings)
    if not marks or new[-1].position > marks[-1].position:
        log.put_document(
            MARKS, msgspec.json.encode(new), None if document is None else document.version
        )
    return marks


def _marks(data: bytes) -> list[LogMark]:
    """None if they cannot be read: then everything counts as of now, and is kept for longer."""
    try:
        return [LogMark(Position(p), ms) for p, ms in msgspec.json.decode(data, type=list[LogMark])]
    except UNREADABLE:
        return []


RemoveState = Callable[[JobId], None]
"""Deletes the state of a job. May raise Unavailable or UserError: it is tried again."""
RemoveFiles = Callable[[str, str], bool]
"""Removes a folder with a name in the location that a job names; False: it is tried again."""


def note_left_files(log: LogReader, replica: Replica, jobs: Sequence[JobId]) -> None:
    """Note beside the log where jobs on Spark that are about to be forgotten may have left files:
    afterwards nobody knows."""
    for job in jobs:
        record = replica.records.get(job)
        if record is None or not record.spec.digest:
            continue
        if not any(SPARK_TAG in task.required_tags for task in record.spec.tasks):
            continue
        try:
            found = left_by(job, stored_job(log.get_chunk(record.spec.digest), job))
        except UserError as error:
            logger.warning("what job %s has left is not known: %s", job, error)
            continue
        if found:
            log.put_document(documents.left_files(job), msgspec.json.encode(found), None)


def sweep_documents(
    log: LogReader,
    now: Callable[[], Replica],
    remove_state: RemoveState,
    remove_files: RemoveFiles | None = None,
) -> bool:
    """Delete what lies beside the log of jobs without a record, and reports of groups that are no
    members.

    Args:
        now: reads the newest replica.
        remove_files: None if the locations of jobs are not seen from here. What says where they are
            then stays.

    Returns:
        Whether no state is left of any job without a record.
    """
    reports = {job: log.list_documents(f"stall/{job}") for job in log.list_folders("stall")}
    found = {
        "frontier": log.list_folders("frontier"),
        "exception": log.list_documents("exception"),
        "code": log.list_documents("code"),
        "query": log.list_documents("query"),
        "stall": tuple(reports),
        "outcome": log.list_folders("outcome"),
    }
    with_state, with_files = log.list_documents("location"), log.list_documents("files")
    replica = now()
    for folder, jobs in found.items():
        for job in jobs:
            if JobId(job) not in replica.records:
                log.delete_documents(f"{folder}/{job}")
    for job, groups in reports.items():
        for group in groups if JobId(job) in replica.records else ():
            if group not in replica.groups_index:
                log.delete_documents(f"stall/{job}/{group}")
    for each in with_files:
        if remove_files is not None and JobId(each) not in replica.records:
            _remove_files(log, JobId(each), remove_files)
    left = [job for each in with_state if (job := JobId(each)) not in replica.records]
    removed = [_removed(log, job, remove_state) for job in left]
    return all(removed)


def _remove_files(log: LogReader, job: JobId, remove_files: RemoveFiles) -> None:
    """A folder that another job still reads stays, and is looked at again."""
    path = documents.left_files(job)
    document = log.get_document(path)
    found: list[LeftFiles] = []
    try:
        if document is not None:
            found = documents.decoded(job, path, document.data, list[LeftFiles])
    except StateError as error:
        logger.warning("what job %s has left stays where it is: %s", job, error)
    removed = [remove_files(each.path, each.name) for each in found]
    if all(removed):
        log.delete_documents(path)


def _removed(log: LogReader, job: JobId, remove_state: RemoveState) -> bool:
    try:
        remove_state(job)
    except (Unavailable, UserError) as error:
        logger.warning("the state of job %s, which was collected, is still there: %s", job, error)
        return False
    log.delete_documents(documents.location(job))
    return True


def named(log: LogReader, replica: Replica) -> set[str]:
    """The chunks that a replica names, and what lies beside the log."""
    found: set[str] = set()
    for job, record in replica.records.items():
        found.add(record.spec.digest)
        found.update(each.digest for each in record.partitions.values())
        if record.spec.inputs == record.spec.outputs:  # on Spark
            query = log.get_document(documents.committed_query(job))
            found.add(documents.chunk_of(query) or "" if query is not None else "")
    found.discard("")
    return found


@prepared
class LeftFiles(msgspec.Struct, frozen=True):
    """The files of one task."""

    path: str
    """The path as the job says it."""
    name: str
    """Name of the folder below."""


def left_by(job_id: JobId, job: Job) -> list[LeftFiles]:
    """What a job may have left, whether it is there or not."""
    found = []
    for entry in job.catalog:
        reads = entry.type == "input" and runs_spark(entry.type, entry.plugin)
        path = entry.options.get("path")
        named = is_path_name(job_id) and is_path_name(entry.name)
        if isinstance(path, str) and named and (reads or entry.stage is not None):
            found.append(LeftFiles(path, f"{job_id}.{entry.name}"))
    return found
