"""Collection of garbage: old entries of the log, jobs that have ended, and what lies beside them.

`onyx gc` asks for it, and the oldest worker does it by itself (`Collector`). Each round looks what
there is and does what follows; nothing is remembered between rounds but the marks beside the log.
So a collector may be killed anywhere, and the next one goes on. That there is one at a time only
spares work: each step is right whoever else takes it.

1. What lies beside the log of jobs without a record is deleted. A listing comes first, then the
   replica: whoever has no record then had one no more when he was listed, or never.
2. Jobs that are old enough are forgotten (`Gc`). It stays known for long how they ended.
3. The log is trimmed: archived, if that is set, then the origin moves, then entries are deleted.
4. Chunks that nothing names are deleted (`LogReader.sweep_chunks` says why that is safe).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from onyx.errors import Unavailable, UserError
from onyx.history.left_files import LeftFiles, left_by
from onyx.history.limits import Mark, expired, marked, trim_to
from onyx.history.replicas import Replicas
from onyx.ids import JobId, Position
from onyx.log import job_documents
from onyx.log.interface import ClientLog, LogReader, Origin
from onyx.model.parsing.job import parse_mapping
from onyx.replica import canonical
from onyx.replica.command import Command
from onyx.replica.commands.gc import REMEMBERED_MAX, Gc
from onyx.replica.spec import SPARK_TAG
from onyx.replica.state import Replica
from onyx.settings import HistorySettings
from onyx.submission import upgrades

logger = logging.getLogger("onyx.history")

FORGOTTEN_AT_ONCE = 500
"""Jobs named in one entry of the log, whose size is limited."""
MARKS = "history/marks"
"""The document with the marks."""

RemoveState = Callable[[JobId], None]
"""Deletes the state of a job. May raise Unavailable or UserError: it is tried again."""
RemoveFiles = Callable[[str, str], bool]
"""Removes a folder with a name in the location that a job names; False: it is tried again."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection of garbage came to."""

    jobs: tuple[JobId, ...]
    """The jobs that are forgotten."""
    position: Position
    """The log starts after this one."""


def collect_all(log: ClientLog, replicas: Replicas) -> Collected:
    """Forget all jobs that have ended, with all that lies beside the log, and start the log from
    the current replica. Their ids are free again. An old job is kept until the job that upgrades it
    has carried over its state.

    Raises:
        Unavailable: ZooKeeper cannot be reached; call it again.
    """
    replica = replicas.at()
    taken, needed = upgrades.progress(log, replica)
    ended = (*replica.completed_jobs, *replica.killed_jobs)
    jobs = tuple(job for job in ended if job not in needed)
    caller = str(uuid.uuid4())
    note_left_files(log, replica, jobs)
    for command in forget(replica, jobs, taken, caller, REMEMBERED_MAX):
        log.append(command)
    # A worker removes the state as soon as it reads the entry (`RemoveState`).
    sweep_documents(log, lambda: replicas.at(after=replica), lambda job: None)
    replica = replicas.at(log.append(Gc(id=caller, jobs=())), after=replica)
    trim(log, replicas, replica.version)
    log.sweep_chunks(lambda: named(log, replicas.at(after=replica)), HistorySettings().chunk_age_s)
    return Collected(jobs, replica.version)


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
            manifest = msgspec.json.decode(log.get_chunk(record.spec.digest))
            found = left_by(job, parse_mapping(manifest))
        except (UserError, msgspec.DecodeError) as error:
            logger.warning("what job %s has left is not known: %s", job, error)
            continue
        if found:
            log.put_document(job_documents.left_files(job), msgspec.json.encode(found), None)


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
    path = job_documents.left_files(job)
    document = log.get_document(path)
    found = [] if document is None else msgspec.json.decode(document.data, type=list[LeftFiles])
    removed = [remove_files(each.path, each.name) for each in found]
    if all(removed):
        log.delete_documents(path)


def _removed(log: LogReader, job: JobId, remove_state: RemoveState) -> bool:
    try:
        remove_state(job)
    except (Unavailable, UserError) as error:
        logger.warning("the state of job %s, which was collected, is still there: %s", job, error)
        return False
    log.delete_documents(job_documents.location(job))
    return True


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


def named(log: LogReader, replica: Replica) -> set[str]:
    """The chunks that a replica names, and what lies beside the log."""
    found: set[str] = set()
    for job, record in replica.records.items():
        found.add(record.spec.digest)
        found.update(each.digest for each in record.partitions.values())
        if record.spec.inputs == record.spec.outputs:  # on Spark
            query = log.get_document(job_documents.committed_query(job))
            found.add(job_documents.chunk_of(query) or "" if query is not None else "")
    found.discard("")
    return found


class Collector:
    """Collects what is too old, a round at a time; see the module. Blocks; one thread at a time.

    Args:
        log: for reading, and documents.
        append: writes a command; it need not wait.
        remove_state, remove_files: see `sweep_documents`.
        now_ms: wall clock, in milliseconds.
    """

    def __init__(
        self,
        log: LogReader,
        replicas: Replicas,
        settings: HistorySettings,
        append: Callable[[Command], None],
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
        marks, now_ms = self._marks(replica), self._now_ms()
        clean = sweep_documents(
            self._log,
            lambda: self._replicas.at(after=replica),
            self._remove_state,
            self._remove_files,
        )
        taken, needed = upgrades.progress(self._log, replica)
        jobs = expired(replica, needed, marks, now_ms, self._settings)
        # An id is let go only when nothing is left of any job.
        keep = self._settings.remembered_max if clean else REMEMBERED_MAX
        note_left_files(self._log, replica, jobs)
        for command in forget(replica, jobs, taken, self._id, keep):
            self._append(command)
        position = self._trimmed(replica, marks, now_ms)
        self._log.sweep_chunks(
            lambda: named(self._log, self._replicas.at(after=replica)), self._settings.chunk_age_s
        )
        return Collected(jobs, position)

    def _trimmed(self, replica: Replica, marks: Sequence[Mark], now_ms: int) -> Position:
        """Trim the log, if it is time; the entry after which it starts."""
        origin = self._log.origin().position
        position = trim_to(origin, replica.version, marks, now_ms, self._settings)
        if position is None:
            return origin
        try:
            trim(self._log, self._replicas, position)
        except UserError as error:
            logger.warning("the log is not trimmed, because its archive refuses it: %s", error)
            return origin
        return position

    def _marks(self, replica: Replica) -> Sequence[Mark]:
        """The marks with one of now, if the last one is not of just now."""
        document, now_ms = self._log.get_document(MARKS), self._now_ms()
        data = b"[]" if document is None else document.data
        marks = [Mark(Position(p), ms) for p, ms in msgspec.json.decode(data, type=list[Mark])]
        new = marked(marks, replica.version, now_ms, self._settings)
        if not marks or new[-1].position > marks[-1].position:
            self._log.put_document(
                MARKS, msgspec.json.encode(new), None if document is None else document.version
            )
        return marks
