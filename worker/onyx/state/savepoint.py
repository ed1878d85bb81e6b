"""A savepoint: a job as it was at one moment, in a folder or bucket, with a name.

    <place>/<name>/manifest.json, <place>/<name>/blobs/...      `storage.sealed_folders`

It needs nothing of the cluster that it comes from: it has the manifest of the job, the names and
positions of its partitions, its state logs, journals and buckets as they are. What is in them is in
the terms of the saved job, so whoever loads it under another id writes that id where the old one
stands (`task.recovery.savepoint`).

Rejected: a format of its own for state, which would be a third one beside logs and buckets, with a
converter for each kind of task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from onyx.base.path_names import is_path_name, path_name
from onyx.base.structs import prepared
from onyx.errors import StateError, UserError
from onyx.ids import JobId, TaskName
from onyx.model.job import Job
from onyx.model.parsing.mapping import stored_job
from onyx.replica.spec import JobSpec
from onyx.replica.state import Partitions
from onyx.storage.sealed_folders import FolderWriter, SavedFile, SealedFolders

FORMAT = 1


@prepared
class SavepointManifest(msgspec.Struct, frozen=True):
    """What is in a savepoint."""

    onyx: str
    """The version that has made it."""
    tenancy: str
    wall_ms: int
    job: JobId
    kinds: Mapping[str, str]
    """What each task is."""
    layouts: Mapping[str, int]
    """The formats of its files."""
    spec: JobSpec
    partitions: Mapping[TaskName, Partitions]
    ready_version: int
    publishes: bool
    """Whether the job had no peers, so that what its outputs have committed may be unpublished."""
    frontiers: Mapping[int, bytes]
    """What is stored of each partition, by its number."""
    query: bytes | None
    """What was committed last on Spark."""
    chunks: Sequence[SavedFile]
    """The manifest of the job and names of partitions, by their digests."""
    files: Sequence[SavedFile]
    """What was in the location of state, by names below the folder of the job."""


class SavepointPlace(SealedFolders):
    """The savepoints of one place."""

    def __init__(self, path: str) -> None:
        """`path`: an absolute path, or a URL. Raises UserError: it is none."""
        super().__init__(path, "savepoint", FORMAT)

    def names(self) -> list[str]:
        """The savepoints that are whole."""
        return [each for each in self.folders() if is_path_name(each) and self.is_whole(each)]

    def begin(self, name: str) -> FolderWriter:
        """Begin a savepoint. Raises UserError: there is one, or nothing can have the name."""
        return self.writer(path_name(name, "the name of a savepoint"))

    def read(self, name: str) -> SavepointManifest:
        """What a savepoint has.

        Raises:
            UserError: there is no such savepoint.
            StateError: its manifest is damaged, or of another version of Onyx.
        """
        found = self.manifest(path_name(name, "the name of a savepoint"), SavepointManifest)
        if found is None:
            raise UserError(
                f"there is no savepoint {self.path}/{name}: `onyx savepoint --list --to "
                f"{self.path}` says which there are, and whoever reads it must see the same folder"
            )
        return found


class Savepoint:
    """One savepoint that is there. Blocks; every method raises as `SavepointPlace.read`."""

    def __init__(self, place: str) -> None:
        """`place`: of the savepoint itself, whose last part is its name."""
        folder, _, self.name = place.rstrip("/").rpartition("/")
        self._place = SavepointPlace(folder or "/")
        self.manifest = self._place.read(self.name)

    def blob(self, file: SavedFile) -> bytes:
        """A file or chunk. Raises StateError: it is gone or damaged."""
        return self._place.blob(self.name, file)

    def job(self) -> Job:
        """The saved job."""
        digest = self.manifest.spec.digest
        found = next((each for each in self.manifest.chunks if each.name == digest), None)
        if found is None:
            raise StateError(f"{self._place.path}/{self.name} has no job: use another savepoint")
        return stored_job(self.blob(found), self.manifest.job)
