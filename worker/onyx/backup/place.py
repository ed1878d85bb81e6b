"""Where backups are: each in a folder of its own, named by its time, in a folder or a bucket
(`storage.sealed_folders`).

A backup needs nothing outside of its folder, so any other one may be removed at any time, without a
look at who uses what. What the backup before has too is copied there: a second link in a folder, a
copy by the store in a bucket. One folder of blobs for all backups was rejected: to delete what none
names is a race with whoever makes the next one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from onyx.base.structs import prepared
from onyx.errors import StateError, UserError
from onyx.ids import JobId
from onyx.storage.sealed_folders import FolderWriter, SavedFile, SealedFolders

FORMAT = 1
UNFINISHED_AGE = timedelta(days=1)
"""Age from which on a backup without a manifest is one whose process was killed."""
_NAME = re.compile(r"\d{8}T\d{6}Z")
TIME = "%Y%m%dT%H%M%SZ"
"""How a name says a time."""


class WrittenParts(msgspec.Struct, frozen=True):
    """What an output under exactly-once had written at the point."""

    task: str
    path: str
    """The folder as the job says it."""
    names: Sequence[str]


class BackedUpJob(msgspec.Struct, frozen=True):
    """What of a job lies beside the log."""

    id: JobId
    files: Sequence[SavedFile]
    parts: Sequence[WrittenParts] = ()


@prepared
class BackupManifest(msgspec.Struct, frozen=True):
    """One point."""

    onyx: str
    """The version that has made it."""
    tenancy: str
    wall_ms: int
    position: int
    """The last entry of the log that the replica contains."""
    replica: SavedFile
    chunks: Sequence[SavedFile]
    documents: Sequence[tuple[str, bytes]]
    jobs: Sequence[BackedUpJob]

    def files(self) -> Iterable[SavedFile]:
        """All blobs, some more than once."""
        yield self.replica
        yield from self.chunks
        for job in self.jobs:
            yield from job.files


class BackupPlace(SealedFolders):
    """The backups of one place."""

    def __init__(self, path: str) -> None:
        """`path`: an absolute path, or a URL. Raises UserError: it is none."""
        super().__init__(path, "backup", FORMAT)

    def names(self) -> list[str]:
        """The backups that are whole, oldest first."""
        return [each for each in self._all() if self.is_whole(each)]

    def newest(self) -> str:
        """The newest backup that is whole. Raises UserError: there is none."""
        names = self.names()
        if not names:
            raise UserError(f"there is no backup in {self.path}")
        return names[-1]

    def begin(self, wall_ms: int) -> FolderWriter:
        """Begin a backup. Raises UserError: one of the same second is there."""
        name = time_name(wall_ms)
        if self.location.list(f"{name}/"):
            raise UserError(f"{self.path} has a backup of this second, {name}: try again")
        before, known = "", set[str]()
        for before in self.names()[-1:]:
            with contextlib.suppress(StateError):  # it helps nobody, and keeps none away
                known = {each.sha256 for each in self.read(before).files()}
        return self.writer(name, before, known)

    def read(self, name: str) -> BackupManifest:
        """What a backup has.

        Raises:
            UserError: there is no such backup.
            StateError: its manifest is damaged, or of another version of Onyx.
        """
        found = self.manifest(name, BackupManifest) if _NAME.fullmatch(name) else None
        if found is None:
            there = ", ".join(self.names()) or "none"
            raise UserError(f"{self.path} has no backup {name}; there are: {there}")
        return found

    def keep(self, count: int) -> list[str]:
        """Remove all but the newest backups, and what killed processes have left; those that
        went."""
        names = self.names()
        gone = names[: max(0, len(names) - count)] if count else []
        limit = _time(names[-1]) - UNFINISHED_AGE if names else datetime.min.replace(tzinfo=UTC)
        left = [each for each in self._all() if each not in names and _time(each) < limit]
        for name in (*gone, *left):
            self.remove(name)
        return gone

    def _all(self) -> list[str]:
        return [each for each in self.folders() if _NAME.fullmatch(each)]


def time_name(wall_ms: int) -> str:
    """A name that says when."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime(TIME)


def _time(name: str) -> datetime:
    return datetime.strptime(name, TIME).replace(tzinfo=UTC)
