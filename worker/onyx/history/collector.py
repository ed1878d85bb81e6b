"""Collects garbage a round at a time, as the oldest worker does: what is too old, and no more."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence

from onyx.errors import UserError
from onyx.history.beside import (
    RemoveFiles,
    RemoveState,
    named,
    note_left_files,
    sweep_documents,
)
from onyx.history.collection import Collected, forget, trim
from onyx.history.limits import Mark, crowded, expired, trim_to
from onyx.history.marks import noted_marks
from onyx.history.replicas import Replicas
from onyx.ids import Position
from onyx.log.interface import LogReader
from onyx.replica.commands.gc import REMEMBERED_MAX, Gc
from onyx.replica.state import Replica
from onyx.settings import HistorySettings
from onyx.submission import upgrades

logger = logging.getLogger("onyx.history")


class Collector:
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
        self, replica: Replica, marks: Sequence[Mark], now_ms: int, settings: HistorySettings
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
