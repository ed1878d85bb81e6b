"""Folders of blobs, each with a manifest that is written last: backups and savepoints.

    <place>/<name>/blobs/<sha256>     what is kept, under its content address
    <place>/<name>/manifest.json      what each of them is; written last

A folder without a manifest is none: whoever writes one may be killed anywhere. With it, it needs
nothing outside of itself. Everything is checked before it is used: the manifest has a digest of
itself and says of which kind it is, and the name of a blob is that of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TypeVar

import msgspec

from onyx.base.structs import prepared, stored
from onyx.errors import StateError, UserError
from onyx.storage.interface import PRIVATE, Location, Purpose
from onyx.storage.opening import location_of

MANIFEST = "manifest.json"
M = TypeVar("M")


class SavedFile(msgspec.Struct, array_like=True, frozen=True):
    """A file by its name in the location of state, or a chunk of the log by its digest."""

    name: str
    size_bytes: int
    sha256: str


@prepared
class _Sealed(msgspec.Struct):
    sha256: str
    content: msgspec.Raw
    kind: str
    format: int


class SealedFolders:
    """The folders of one place. Blocks; raises what a `Location` does.

    Args:
        path: an absolute path, or a URL.
        kind: what a folder is, in a word: `backup`.
        format: of their manifests.
    """

    def __init__(self, path: str, kind: str, format: int) -> None:
        """Raises UserError: `path` is none."""
        hint = "name a folder that may be written, or s3://bucket/prefix"
        purpose = Purpose(f"{kind}s cannot be kept in", hint, PRIVATE, prunes=True)
        self.location = location_of(path, purpose)
        self.path = path.rstrip("/") or "/"
        self._kind = kind
        self._format = format
        self._other = f"take another {kind}"

    def folders(self) -> list[str]:
        """The names of all, whole ones or not."""
        entries = self.location.entries() or ()
        return sorted(each.name for each in entries if each.is_folder)

    def is_whole(self, name: str) -> bool:
        """Whether there is such a folder with a manifest."""
        return self.location.exists(f"{name}/{MANIFEST}")

    def manifest(self, name: str, hint: type[M]) -> M | None:
        """The manifest of a folder; None: there is none.

        Raises:
            StateError: it is damaged, of another kind, or of another version of Onyx.
        """
        where = f"{self.path}/{name}/{MANIFEST}"
        data = self.location.read(f"{name}/{MANIFEST}")
        if data is None:
            return None
        sealed: _Sealed = stored(data, _Sealed, where, self._other)
        if sealed.kind != self._kind:
            raise StateError(f"{where} is that of a {sealed.kind}, and of no {self._kind}")
        if sealed.format != self._format:
            raise StateError(
                f"{where} has format {sealed.format}, this version of Onyx reads {self._format}; "
                f"{self._other} with this version"
            )
        if hashlib.sha256(sealed.content).hexdigest() != sealed.sha256:
            raise StateError(f"{where} is damaged: its digest is another one; {self._other}")
        found: M = stored(bytes(sealed.content), hint, where, self._other)
        return found

    def blob(self, name: str, file: SavedFile) -> bytes:
        """The content of a file. Raises StateError: it is gone or damaged."""
        path = _blob(name, file.sha256)
        data, where = self.location.read(path), f"{self.path}/{path} ({file.name})"
        if data is None:
            raise StateError(f"{where} is gone; use another {self._kind}")
        if len(data) != file.size_bytes or hashlib.sha256(data).hexdigest() != file.sha256:
            raise StateError(
                f"{where} is damaged: its digest is another one; use another {self._kind}"
            )
        return data

    def writer(self, name: str, before: str = "", known: Collection[str] = ()) -> FolderWriter:
        """Begin a folder. Raises UserError: there is one of this name.

        Args:
            before: another folder, which has blobs of the digests `known`.
        """
        if self.location.list(f"{name}/"):
            raise UserError(
                f"{self.path} has a {self._kind} {name} already, or what is left of one that "
                "was not finished: give another name, or remove that folder"
            )
        return FolderWriter(self.location, name, self._kind, self._format, before, known)

    def remove(self, name: str) -> None:
        """Remove a folder with all that is in it; from its first file on it is none."""
        self.location.delete(f"{name}/{MANIFEST}")
        for file in self.location.list(f"{name}/"):
            self.location.delete(file.name)


class FolderWriter:
    """One folder, as it is made. Safe from any thread."""

    def __init__(
        self,
        location: Location,
        name: str,
        kind: str,
        format: int,
        before: str,
        known: Collection[str],
    ) -> None:
        self._location = location
        self.name = name
        self._kind = kind
        self._format = format
        self._before = before
        self._known = known

    def put(self, name: str, data: bytes) -> SavedFile:
        """Store what a file has."""
        digest = hashlib.sha256(data).hexdigest()
        blob = _blob(self.name, digest)
        if digest in self._known:
            self._location.copy(_blob(self._before, digest), blob)
        copied = digest in self._known and self._location.exists(blob)
        if not copied and not self._location.create(blob, data):
            path = self._location.path_of(blob)
            raise StateError(f"{path} is damaged; take another {self._kind}")
        return SavedFile(name, len(data), digest)

    def finish(self, manifest: msgspec.Struct) -> None:
        """All is there: from here on it counts. Raises UserError: somebody else has made one of
        this name."""
        data = msgspec.json.encode(manifest)
        digest = hashlib.sha256(data).hexdigest()
        sealed = _Sealed(digest, msgspec.Raw(data), self._kind, self._format)
        if not self._location.create(f"{self.name}/{MANIFEST}", msgspec.json.encode(sealed)):
            raise UserError(
                f"somebody else has made the {self._kind} {self.name} meanwhile: give another name"
            )


def _blob(name: str, digest: str) -> str:
    return f"{name}/blobs/{digest}"
