"""Begin an empty log with a backup, and bring what lies beside it back to that point.

All blobs are read and checked first; nothing is changed by a backup that is not whole. The log
begins with the replica last, in one step. Until then it is as empty as before, so whoever is killed
on the way restores again, and what is there already stays as it is.

State that was written after the point must go: it knows segments that the inputs will read again,
and versions that are to come. So must the parts that outputs under exactly-once have written since,
as they are written once more. That is done only for who says so: another cluster may use the
location.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from onyx.backup.place import BackedUpJob, BackupManifest, BackupPlace
from onyx.errors import StateError, UserError
from onyx.ids import NO_POSITION, Position
from onyx.log.documents import RESTORE_LOG
from onyx.log.interface import ClientLog, Origin
from onyx.plugins.parts.folders import NotThere, parts_in, whose
from onyx.replica import canonical, members
from onyx.replica.derived import settle
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.state.location import open_store, state_location
from onyx.storage.opening import absolute, location_of
from onyx.storage.sealed_folders import SavedFile

THREADS = 8
ANSWERS_MAX = 3
"""Files that are named in a message."""


class Later(msgspec.Struct):
    """What was written after the point."""

    state: list[str] = msgspec.field(default_factory=list)
    """Files in the location of state."""
    parts: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Folders of outputs, each with the name of a part."""

    def __str__(self) -> str:
        found = [*self.state, *(f"{folder}/{name}" for folder, name in self.parts)]
        more = f" and {len(found) - ANSWERS_MAX} more" if len(found) > ANSWERS_MAX else ""
        return f"{', '.join(found[:ANSWERS_MAX])}{more}"


class Restorer:
    """Restores one backup.

    Args:
        log: the empty one.
        settings: where state is kept, and files of jobs.
        say: hears what somebody should know.
    """

    def __init__(
        self,
        log: ClientLog,
        settings: Settings,
        place: BackupPlace,
        name: str,
        say: Callable[[str], None],
    ) -> None:
        self._log = log
        self._settings = settings
        self._place = place
        self._name = name
        self._manifest = place.read(name)
        self._say = say
        self._location = state_location(settings)
        self._store = open_store(self._location, settings.state.group_access)

    def restore(self, discard_later: bool) -> tuple[BackupManifest, Later]:
        """Restore it; what is in it, and what was written later and is gone now.

        Args:
            discard_later: whether what was written after the point may be removed.

        Raises:
            UserError: the log is not empty, or something was written later and must stay.
            StateError: the backup is damaged; nothing was changed.
        """
        manifest = self._manifest
        self._check_blobs()
        replica = self._replica()
        self._check_empty(replica)
        later = self._later()
        if (later.state or later.parts) and not discard_later:
            raise UserError(
                f"{len(later.state) + len(later.parts)} files were written after the backup "
                f"{self._name}: {later}. They must go, because what they hold is read and written "
                "again: see that no other cluster uses them, and restore with --discard-later"
            )
        for file in manifest.chunks:
            self._log.put_chunk(self._place.blob(self._name, file))
        self._put_documents()
        for name in later.state:
            self._store.delete(name)
        with ThreadPoolExecutor(THREADS, "onyx-restore") as threads:
            list(threads.map(self._put_state, self._state_files()))
        for folder, part in later.parts:
            location_of(folder).delete(part)
        origin = Origin(replica.version, canonical.encode(replica))
        if not self._log.begin_with(origin):
            raise self._not_empty("somebody has used it meanwhile")
        return manifest, later

    def _check_blobs(self) -> None:
        files = {file.sha256: file for file in self._manifest.files()}
        with ThreadPoolExecutor(THREADS, "onyx-restore") as threads:
            for _ in threads.map(
                lambda each: len(self._place.blob(self._name, each)), files.values()
            ):
                pass

    def _replica(self) -> Replica:
        """The replica after all workers have left, which are those of the log that was lost."""
        data = self._place.blob(self._name, self._manifest.replica)
        found = canonical.decode(data)
        if found.version == NO_POSITION:
            raise UserError(f"the backup {self._name} is of a log in which nothing had happened")
        return without_workers(found)

    def _check_empty(self, replica: Replica) -> None:
        held = dict(self._log.establish({"job-scheduler": replica.job_scheduler}))["job-scheduler"]
        if held != replica.job_scheduler:
            raise UserError(
                f"the job scheduler of the log is {held}, and that of the backup "
                f"{replica.job_scheduler}: delete the log as a whole, and restore into "
                "one that nobody has opened"
            )
        there, entries = self._log.origin(), self._log.read(NO_POSITION, 1)
        if there.position != NO_POSITION:
            raise self._not_empty(f"it begins after entry {there.position}")
        if entries:
            raise self._not_empty(f"its first entry is {entries[0].command.NAME}")

    def _not_empty(self, why: str) -> UserError:
        return UserError(
            f"the log of tenancy {self._settings.tenancy_id} is not empty: {why}. A backup is "
            "restored before any worker or operator has opened the log: stop them, delete the log "
            "as a whole (this forgets its jobs), and restore again"
        )

    # --- beside the log ---------------------------------------------------------------------------

    def _put_documents(self) -> None:
        for path, data in self._manifest.documents:
            found = self._log.get_document(path)
            if found is None or found.data != data:
                version = None if found is None else found.version
                if self._log.put_document(path, data, version) is None:
                    raise self._not_empty(f"somebody writes {path}")

    def _state_files(self) -> Iterator[SavedFile]:
        for job in self._manifest.jobs:
            yield from job.files

    def _put_state(self, file: SavedFile) -> None:
        data = self._place.blob(self._name, file)
        if not self._store.create(file.name, data):
            # Other bytes: a note that is further on, or a chunk of the same number, from later.
            self._store.delete(file.name)
            if not self._store.create(file.name, data):
                raise StateError(f"somebody writes {self._location}/{file.name}; {RESTORE_LOG}")

    def _later(self) -> Later:
        found = Later()
        for job in self._manifest.jobs:
            had = {file.name: file.size_bytes for file in job.files}
            for name, size_bytes in self._store.list(f"{job.id}/"):
                if had.get(name) != size_bytes:
                    found.state.append(name)
            found.parts += self._later_parts(job)
        return found

    def _later_parts(self, job: BackedUpJob) -> Iterator[tuple[str, str]]:
        for output in job.parts:
            folder, own = absolute(output.path, self._settings.data_dir), whose(output.task, job.id)
            try:
                parts = [*parts_in(folder, own.__eq__, f"job {job.id}, output {output.task}")]
            except NotThere as error:
                self._say(f"{error}. What was written there after the backup is there twice then")
                continue
            names = (each.path.rpartition("/")[2] for each in parts)
            yield from ((folder, name) for name in names if name not in {*output.names})


def without_workers(replica: Replica) -> Replica:
    """The replica after all groups have left at once. No job ends of that, whatever its flux policy
    says: it was not the death of these workers that has lost the log."""
    position, new = Position(replica.version + 1), replica
    joining = {*replica.prepared, *replica.accepted, *replica.orphaned_peers}
    for group in (*replica.groups, *sorted(joining.difference(replica.groups))):
        new = members.leave(new, group, position)
    new = settle(replica, new, position)
    return msgspec.structs.replace(new, version=position)
