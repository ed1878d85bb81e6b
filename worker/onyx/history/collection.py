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
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence

import msgspec

from onyx.errors import UserError
from onyx.history.archive import open_archive
from onyx.history.beside import (
    RemoveFiles,
    RemoveState,
    named,
    note_left_files,
    sweep_documents,
)
from onyx.history.limits import LogMark, crowded, expired, noted_marks, trim_to
from onyx.history.replicas import Replicas
from onyx.ids import JobId, Position
from onyx.log.interface import ClientLog, GroupLog, LogReader, Origin
from onyx.log.tenancy import Usage
from onyx.replica import canonical
from onyx.replica.commands.gc import REMEMBERED_MAX, Gc
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
