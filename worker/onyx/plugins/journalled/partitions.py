"""All journalled partitions that one peer of an input owns."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from onyx.errors import Fenced, StateError, Unavailable, UserError
from onyx.ids import JobId
from onyx.journal.journal import Journal, read_ended
from onyx.journal.logs import PartitionFolder
from onyx.journal.view import JournalView
from onyx.model.retention import NOTHING, Retention
from onyx.plugins.bases import partition_names
from onyx.plugins.journalled.partition import Feed, JournalledPartition
from onyx.plugins.journalled.reader import JournalReader, OwnerReader, replaying
from onyx.plugins.options import option_error
from onyx.plugins.protocol import START, Behind, Cursor, PluginContext
from onyx.plugins.starting import OPTION, StartFrom, check_partitions, position_in, read_start

logger = logging.getLogger(__name__)
COLLECT_INTERVAL_S = 5.0
DROP_INTERVAL_S = 60.0
_JOB = "journalOf"
"""Key of a cursor's state: the job whose journal it is a cursor of."""

OpenFeed = Callable[[str, Journal], Feed]
"""Makes the source of a partition that has been taken over."""


class JournalledPartitions:
    """Opens partitions, and deletes what has been passed. Not thread-safe, but for its own
    threads."""

    def __init__(
        self,
        context: PluginContext,
        partitions: int,
        journal_bytes_max: int,
        feed: OpenFeed,
        retention: Retention = NOTHING,
    ) -> None:
        self._context = context
        self.names = partition_names(partitions)
        self._bytes_max = journal_bytes_max
        self._feed = feed
        self._retention = retention
        self._next_drop_s = context.clock.monotonic_s()
        self._version = 0
        self._open: dict[str, JournalledPartition] = {}
        self._closing = threading.Event()
        self._collector: threading.Thread | None = None

    def allocate(self, version: int) -> None:
        """Partitions that are opened from now on are owned in this allocation version."""
        self._version = version

    def start(self, partition: str, start_from: StartFrom | None) -> Cursor:
        """Where a partition is read first that this job has not carried over: in the journal of the
        job before it, or in one of its own. Blocks."""
        context = self._context
        old = context.begins_after() if start_from is not None else None
        if start_from is None or old is None:
            return START
        start = read_start(start_from)
        check_partitions(context, start, self.names)
        if len(old.positions) != len(self.names):
            what = (
                f"goes on in the journal of job {old.job}, which has {len(old.positions)} "
                f"partitions, not {len(self.names)}: take as many, or leave it out to begin anew"
            )
            raise option_error(context, OPTION, what)
        store, number = context.durable_store(), self.names.index(partition)
        job = JobId((old.states[number] or {}).get(_JOB, old.job))
        theirs = PartitionFolder(job, context.task, number)
        read_ended(store, theirs)
        view = JournalView(store, theirs)
        bounds = view.bounds()
        position = position_in(bounds, start, partition, context.clock.wall_ms(), view.since)
        # What is taken is processed, whatever happens: so nothing of it is left out.
        position = min(position, old.positions[number])
        if position < bounds.first:
            what = f"is gone in partition {partition}: job {job} keeps from {bounds.first:,} on"
            raise option_error(context, OPTION, what)
        return Cursor(position, {_JOB: str(job)})

    def open(self, partition: str, cursor: Cursor) -> JournalReader:
        """The reader of a partition, whose journal is taken over. Of one that is open here, another
        reader of what is there, for a replay."""
        state = {_JOB: str(self._context.job)}
        owned = self._open.get(partition)
        if owned is not None:
            return replaying(owned.journal, cursor.position, state)
        journal = self._journal(partition, cursor)
        owned = JournalledPartition(
            journal,
            self._feed(partition, journal),
            self._context.wake,
            self._bytes_max,
            f"{self._context.task}-{partition}",
        )
        self._open[partition] = owned
        owned.start()
        self._collect_from_now_on()
        return OwnerReader(
            owned,
            cursor.position,
            state,
            partial(self._give_away, partition),
            self._context.metrics,
            self._size_bytes,
        )

    def behind(self, cursors: Mapping[str, Cursor]) -> dict[str, Behind]:
        """What is in the journals from these cursors on, and what the feeds know to come."""
        found: dict[str, Behind] = {}
        for name, cursor in cursors.items():
            owned = self._open.get(name)
            if owned is not None:
                waiting = owned.feed.unread
                taken = max(0, owned.end - cursor.position)
                size_bytes = (
                    owned.journal.size_bytes if taken else 0
                )  # what is processed goes later
                found[name] = Behind(taken + (waiting or 0), size_bytes, waiting)
        return found

    def close(self) -> None:
        """Close all that is open."""
        self._closing.set()
        for partition in list(self._open):
            self._give_away(partition)

    def _journal(self, partition: str, cursor: Cursor) -> Journal:
        """Take the journal over, at the frontier of its partition. The first frontier after an
        upgrade is one of the old job's journal: what is left there is copied."""
        context, number = self._context, self.names.index(partition)
        store = context.durable_store()
        folder = PartitionFolder(context.job, context.task, number)
        journal = Journal(
            store,
            folder,
            self._version,
            context.incarnation,
            self._retention,
            context.clock.wall_ms,
        )
        before = JobId((cursor.state or {}).get(_JOB, context.job))
        if before != context.job:
            theirs = PartitionFolder(before, context.task, number)
            journal.adopt(read_ended(store, theirs), theirs, cursor.position)
            if context.upgrades not in (None, before):
                # It has gone on in that journal already, and died before its cursor said so.
                theirs = PartitionFolder(context.upgrades, context.task, number)
                found = read_ended(store, theirs)
                if found.origin == journal.origin:
                    journal.adopt(found, theirs, cursor.position)
        if journal.end < cursor.position:
            raise StateError(
                f"{context.where}: the journal {folder.prefix} ends at position {journal.end}, but "
                f"{cursor.position} segments of it were read: restore its files from a copy, or "
                "submit the job again under another name"
            )
        journal.processed(cursor.position)
        return journal

    def _size_bytes(self) -> int:
        return sum(each.journal.size_bytes for each in self._open.values())

    def _give_away(self, partition: str) -> None:
        owned = self._open.pop(partition, None)
        if owned is not None:
            owned.close()

    # --- collection -----------------------------------------------------------------------------

    def _collect_from_now_on(self) -> None:
        if self._collector is None:
            name = f"onyx-journal-collector-{self._context.task}"
            self._collector = threading.Thread(target=self._collect, name=name, daemon=True)
            self._collector.start()

    def _collect(self) -> None:
        while not self._closing.wait(COLLECT_INTERVAL_S):
            try:
                self._collect_once()
            except Fenced:
                pass  # the session has expired: this owner ends soon, and the next one collects
            except (Unavailable, UserError) as error:
                logger.warning("a journal that is not needed any more stays for now: %s", error)
            except Exception:
                logger.exception("a bug in Onyx: please report it")

    def _collect_once(self) -> None:
        # By the stored frontiers: whoever takes over reads from there on.
        now_s = self._context.clock.monotonic_s()
        drops = now_s >= self._next_drop_s
        for name, cursor in zip(self.names, self._context.cursors(), strict=False):
            owned = self._open.get(name)
            if owned is not None:
                drained = cursor.position >= owned.end
                owned.journal.collect(cursor.position, owned.feed.remembered, drained)
                if drops:
                    owned.journal.drop(cursor.position)
        if drops:
            self._next_drop_s = now_s + DROP_INTERVAL_S


def journal_in(state: Any) -> str | None:
    """The job of whose journal this is the state of a cursor; None: it is of no journal."""
    return state.get(_JOB) if isinstance(state, dict) else None


def in_journal_of(state: Any, job: JobId) -> Any:
    """The state of a cursor of a journal as one of the same in the journal of another job."""
    return state if journal_in(state) is None else {**state, _JOB: str(job)}
