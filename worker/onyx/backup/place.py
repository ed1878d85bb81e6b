"""Where backups are: each in a folder of its own, named by its time, in a folder or a bucket.

    <to>/20261130T043000Z/blobs/<sha256>     what is backed up, under its content address
    <to>/20261130T043000Z/manifest.json      what each of them is; written last

A backup without a manifest is none: whoever makes one may be killed anywhere. With it, it needs
nothing outside of its folder, so any other one may be removed at any time, without a look at who
uses what. What the backup before has too is copied there: a second link in a folder, a copy by the
store in a bucket. One folder of blobs for all backups was rejected: to delete what none names
is a race with whoever makes the next one.

Everything is checked before it is used: the manifest has a digest of itself, and the name of a blob
is that of its content.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from onyx.base.structs import prepared, stored
from onyx.errors import StateError, UserError
from onyx.ids import JobId
from onyx.storage.interface import PRIVATE, Location, Purpose
from onyx.storage.opening import location_of

FORMAT = 1
MANIFEST = "manifest.json"
UNFINISHED_AGE = timedelta(days=1)
"""Age from which on a backup without a manifest is one whose process was killed."""
_NAME = re.compile(r"\d{8}T\d{6}Z")
_TIME = "%Y%m%dT%H%M%SZ"
_REMEDY = "take another backup"
_OTHER = "restore another backup"
_PURPOSE = Purpose(
    "backups cannot be kept in",
    "name a folder that may be written, or s3://bucket/prefix",
    PRIVATE,
    prunes=True,
)


class BackedUpFile(msgspec.Struct, array_like=True, frozen=True):
    """A file by its name in the location of state, or a chunk of the log by its digest."""

    name: str
    size_bytes: int
    sha256: str


class WrittenParts(msgspec.Struct, frozen=True):
    """What an output under exactly-once had written at the point."""

    task: str
    path: str
    """The folder as the job says it."""
    names: Sequence[str]


class BackedUpJob(msgspec.Struct, frozen=True):
    """What of a job lies beside the log."""

    id: JobId
    files: Sequence[BackedUpFile]
    parts: Sequence[WrittenParts] = ()


@prepared
class BackupManifest(msgspec.Struct, frozen=True):
    """One point."""

    format: int
    onyx: str
    """The version that has made it."""
    tenancy: str
    wall_ms: int
    position: int
    """The last entry of the log that the replica contains."""
    replica: BackedUpFile
    chunks: Sequence[BackedUpFile]
    documents: Sequence[tuple[str, bytes]]
    jobs: Sequence[BackedUpJob]

    def files(self) -> Iterable[BackedUpFile]:
        """All blobs, some more than once."""
        yield self.replica
        yield from self.chunks
        for job in self.jobs:
            yield from job.files


@prepared
class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    sha256: str
    backup: msgspec.Raw


class BackupPlace:
    """The backups of one place. Blocks; raises what a `Location` does."""

    def __init__(self, path: str) -> None:
        """`path`: an absolute path, or a URL. Raises UserError: it is none."""
        self.location = location_of(path, _PURPOSE)
        self.path = path

    def names(self) -> list[str]:
        """The backups that are whole, oldest first."""
        return [each for each in self._folders() if self.location.exists(f"{each}/{MANIFEST}")]

    def newest(self) -> str:
        """The newest backup that is whole. Raises UserError: there is none."""
        names = self.names()
        if not names:
            raise UserError(f"there is no backup in {self.path}")
        return names[-1]

    def begin(self, wall_ms: int) -> BackupWriter:
        """Begin a backup. Raises UserError: one of the same second is there."""
        name = datetime.fromtimestamp(wall_ms / 1000, UTC).strftime(_TIME)
        if self.location.list(f"{name}/"):
            raise UserError(f"{self.path} has a backup of this second, {name}: try again")
        before, known = "", set[str]()
        for before in self.names()[-1:]:
            with contextlib.suppress(StateError):  # it helps nobody, and keeps none away
                known = {each.sha256 for each in self.read(before).files()}
        return BackupWriter(self.location, name, before, known)

    def read(self, name: str) -> BackupManifest:
        """What a backup has.

        Raises:
            UserError: there is no such backup.
            StateError: its manifest is damaged, or of another version of Onyx.
        """
        data = self.location.read(f"{name}/{MANIFEST}") if _NAME.fullmatch(name) else None
        if data is None:
            there = ", ".join(self.names()) or "none"
            raise UserError(f"{self.path} has no backup {name}; there are: {there}")
        where = f"{self.path}/{name}/{MANIFEST}"
        sealed: _Sealed = stored(data, _Sealed, where, _REMEDY)
        if hashlib.sha256(sealed.backup).hexdigest() != sealed.sha256:
            raise StateError(f"{where} is damaged: its digest is another one; {_REMEDY}")
        found: BackupManifest = stored(bytes(sealed.backup), BackupManifest, where, _REMEDY)
        if found.format != FORMAT:
            raise StateError(f"{where} has format {found.format}, this version reads {FORMAT}")
        return found

    def blob(self, name: str, file: BackedUpFile) -> bytes:
        """The content of a file. Raises StateError: it is gone or damaged."""
        path = _blob(name, file.sha256)
        data, where = self.location.read(path), f"{self.path}/{path} ({file.name})"
        if data is None:
            raise StateError(f"{where} is gone; {_OTHER}")
        if len(data) != file.size_bytes or hashlib.sha256(data).hexdigest() != file.sha256:
            raise StateError(f"{where} is damaged: its digest is another one; {_OTHER}")
        return data

    def keep(self, count: int) -> list[str]:
        """Remove all but the newest backups, and what killed processes have left; those that
        went."""
        names = self.names()
        gone = names[: max(0, len(names) - count)] if count else []
        limit = _time(names[-1]) - UNFINISHED_AGE if names else datetime.min.replace(tzinfo=UTC)
        left = [each for each in self._folders() if each not in names and _time(each) < limit]
        for name in (*gone, *left):
            self.location.delete(f"{name}/{MANIFEST}")  # from here on it is no backup
            for file in self.location.list(f"{name}/"):
                self.location.delete(file.name)
        return gone

    def _folders(self) -> list[str]:
        entries = self.location.entries() or ()
        return sorted(
            each.name for each in entries if each.is_folder and _NAME.fullmatch(each.name)
        )


class BackupWriter:
    """One backup, as it is made. Safe from any thread."""

    def __init__(self, location: Location, name: str, before: str, known: set[str]) -> None:
        """`known`: digests of the blobs that the backup `before` has."""
        self._location = location
        self.name = name
        self._before = before
        self._known = known

    def put(self, name: str, data: bytes) -> BackedUpFile:
        """Store what a file has."""
        digest = hashlib.sha256(data).hexdigest()
        blob = _blob(self.name, digest)
        if digest in self._known:
            self._location.copy(_blob(self._before, digest), blob)
        copied = digest in self._known and self._location.exists(blob)
        if not copied and not self._location.create(blob, data):
            raise StateError(f"{self._location.path_of(blob)} is damaged; {_REMEDY}")
        return BackedUpFile(name, len(data), digest)

    def finish(self, manifest: BackupManifest) -> None:
        """All is there: from here on it is a backup."""
        data = msgspec.json.encode(manifest)
        sealed = _Sealed(hashlib.sha256(data).hexdigest(), msgspec.Raw(data))
        self._location.create(f"{self.name}/{MANIFEST}", msgspec.json.encode(sealed))


def _blob(name: str, digest: str) -> str:
    return f"{name}/blobs/{digest}"


def _time(name: str) -> datetime:
    return datetime.strptime(name, _TIME).replace(tzinfo=UTC)
