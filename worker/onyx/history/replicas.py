"""Replicas: the log folded from its origin on, as every peer folds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from onyx.history.archive import Archive
from onyx.ids import Position
from onyx.log.interface import LogReader, Origin
from onyx.replica import canonical, machine
from onyx.replica.command import Entry
from onyx.replica.state import Replica


class Change(NamedTuple):
    """An entry with what it has changed."""

    old: Replica
    entry: Entry
    new: Replica


class Replicas:
    """Folds the log of one tenancy."""

    def __init__(self, log: LogReader, job_scheduler: str, archive: Archive | None = None) -> None:
        """
        Args:
            job_scheduler: of a tenancy that nobody has used before.
            archive: of what was trimmed, if it is kept.
        """
        self._log = log
        self._given = job_scheduler
        self.archive = archive

    @property
    def job_scheduler(self) -> str:
        """The job scheduler of the tenancy; this client's own if it is the first one there."""
        return dict(self._log.establish({"job-scheduler": self._given}))["job-scheduler"]

    def at(self, position: Position | None = None, after: Replica | None = None) -> Replica:
        """The replica after the newest entry, or after the one at a position.

        If the log was trimmed beyond that position, it is read from the archive; without one, the
        replica that the log starts from.

        Args:
            after: an older replica of this log, from which to go on.
        """
        replica = self.start() if after is None else after
        if position is not None and position < replica.version and self.archive is not None:
            first = Replica(job_scheduler=self.job_scheduler)
            return self.archive.replica(position, first, machine.apply) or replica
        while True:
            entries = self._log.read(replica.version)
            if not entries or entries[0].position > replica.version + 1:
                # Entries may have been collected since; a listing would not show it.
                origin = self._log.origin(above=replica.version)
                if origin.replica:
                    replica = canonical.decode(origin.replica)
                    continue
            if not entries:
                return replica
            for entry in entries:
                if position is not None and entry.position > position:
                    return replica
                if entry.position > replica.version + 1 and entry is not entries[0]:
                    break
                replica = machine.apply(replica, entry)

    def entries(self, after: Position) -> Iterator[Entry]:
        """All entries behind a position that are there now, those in the archive first."""
        if self.archive is not None:
            for entry in self.archive.entries(after, self._log.origin().position):
                yield entry
                after = entry.position
        while entries := self._log.read(after):
            yield from entries
            after = entries[-1].position

    def first(self) -> Replica:
        """The oldest replica that is known: where the archive begins, or else the log."""
        segments = self.archive.segments() if self.archive is not None else []
        return self.at(Position(segments[0].first - 1)) if segments else self.start()

    def changes(self) -> Iterator[Change]:
        """All entries that are there now, those in the archive first, each with the replicas
        before and after it."""
        replica = self.first()
        for entry in self.entries(replica.version):
            if entry.position > replica.version + 1:
                # Entries in between are gone, if there were any: the archive lacks a file, or the
                # log was trimmed meanwhile.
                replica = self._before(entry, replica)
            change = Change(replica, entry, machine.apply(replica, entry))
            yield change
            replica = change.new

    def _before(self, entry: Entry, replica: Replica) -> Replica:
        found = self.at(Position(entry.position - 1))
        return found if replica.version < found.version < entry.position else replica

    @contextmanager
    def follow(
        self,
        deliver: Callable[[Entry | Origin, Replica], None],
        after: Replica | None = None,
        failed: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """Call `deliver` for each entry from the origin on, or behind the replica `after`, with the
        replica after it.

        What `deliver` raises ends that, and the end of the block raises it.

        Args:
            failed: is called when `deliver` has raised, for a block that waits.
        """
        replica = self.start() if after is None else after

        def apply(item: Entry | Origin) -> None:
            nonlocal replica
            if isinstance(item, Origin):
                replica = canonical.decode(item.replica)
            else:
                replica = machine.apply(replica, item)
            deliver(item, replica)

        failures: list[BaseException] = []

        def fail(error: BaseException) -> None:
            failures.append(error)
            failed()

        unsubscribe = self._log.subscribe(replica.version, apply, fail)
        try:
            yield
        finally:
            unsubscribe()
        if failures:
            raise failures[0]

    def start(self) -> Replica:
        """The replica that the log starts from."""
        origin = self._log.origin()
        if origin.replica:
            return canonical.decode(origin.replica)
        return Replica(job_scheduler=self.job_scheduler)
