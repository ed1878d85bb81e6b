"""Make a backup: the replica of one entry, and of each job what lies beside the log at that moment.

Jobs are copied one after the other, and each counts as long as its record in the replica is the one
that it was copied with. So the newest replica and all copies are of one moment, however long it
took; those whose record has changed are copied again. Documents that are about no job's progress
are as they are at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from onyx import __version__
from onyx.backup.capture import JobCapture, JobPoint, Moved, SeenJob, comparable
from onyx.backup.place import BackupManifest, BackupPlace
from onyx.client.client import Client
from onyx.errors import Unavailable, UserError
from onyx.history.collection import named
from onyx.ids import JobId
from onyx.log.interface import LogReader
from onyx.replica import canonical
from onyx.replica.jobs import is_collected
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.storage.sealed_folders import FolderWriter, SavedFile

ROUNDS_MAX = 20
"""How often all jobs are looked at, because some have changed."""
TRIES_MAX = 20
"""How often a job is looked at before it is paused for that."""
PAUSED_TRIES_MAX = 200
"""How often it is looked at then: frontiers are stored every two seconds."""
PAUSE_S = 0.1
"""Between two of them, for what is being moved to arrive."""
_REPLICA = "replica"


class BackupMaker:
    """Makes backups of one cluster.

    Args:
        say: hears what somebody should know, such as what is not in the backup.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        place: BackupPlace,
        say: Callable[[str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._log = client.log
        self._settings = settings
        self._place = place
        self._say = say
        self._now_ms = now_ms

    def make(self) -> tuple[str, BackupManifest]:
        """Make one; its name, and what is in it.

        Raises:
            UserError: the place, or the location of state, is wrong.
            Unavailable: something does not answer, or a job keeps changing.
        """
        wall_ms = self._now_ms()
        writer = self._place.begin(wall_ms)
        capture = JobCapture(self._log, self._settings, writer.put, self._say)
        replica, points = self._points(JobPoints(self._client, capture, self._say))
        documents = dict(_all_documents(self._log))
        for point in points.values():
            documents |= {path: each.data for path, each in point.documents.items()}
        manifest = BackupManifest(
            __version__,
            self._settings.tenancy_id,
            wall_ms,
            replica.version,
            writer.put(_REPLICA, canonical.encode(replica)),
            list(self._chunks(writer, replica)),
            sorted(documents.items()),
            [points[job].files for job in sorted(points)],
        )
        writer.finish(manifest)
        return writer.name, manifest

    def _points(self, moments: JobPoints) -> tuple[Replica, dict[JobId, JobPoint]]:
        points, changed = dict[JobId, JobPoint](), list[JobId]()
        for _ in range(ROUNDS_MAX):
            replica = self._client.replica()
            points = {
                job: point
                for job, point in points.items()
                if job in replica.records and point.record == comparable(replica.records[job])
            }
            changed = [job for job in replica.records if job not in points]
            if not changed:
                return replica, points
            for job in sorted(changed):
                point = moments.point(job)
                if point is not None:
                    points[job] = point
        raise Unavailable(
            f"jobs change faster than they are copied ({', '.join(sorted(changed)[:3])}): take the "
            "backup again when they are not starting"
        )

    def _chunks(self, writer: FolderWriter, replica: Replica) -> Iterator[SavedFile]:
        for digest in sorted(named(self._log, replica)):
            yield writer.put(digest, self._log.get_chunk(digest))


class JobPoints:
    """Jobs, each at a moment at which it is quiet.

    Args:
        say: hears of a job that is paused for that.
    """

    def __init__(self, client: Client, capture: JobCapture, say: Callable[[str], None]) -> None:
        self._client = client
        self._capture = capture
        self._say = say

    def point(self, job: JobId) -> JobPoint | None:
        """A job, as soon as it is quiet; None: it is gone, or has moved on before it was copied."""
        try:
            seen = self._quiet(job, TRIES_MAX)
            if seen is None:
                self._say(f"job {job} is too busy to be seen as it is, and is paused for a moment")
                with self._client.paused(job):
                    seen = self._quiet(job, PAUSED_TRIES_MAX)
            if seen is None:
                raise Unavailable(f"job {job} moves although it is paused: try again")
            return self._capture.copy(seen)
        except (Moved, KeyError):
            return None
        except UserError:  # its state may have gone with its end
            if is_collected(self._client.replica(), job):
                return None
            raise

    def _quiet(self, job: JobId, tries: int) -> SeenJob | None:
        """The job at a moment at which it is quiet. Raises KeyError: it is gone."""
        for _ in range(tries):
            try:
                return self._capture.look(self._client.replica(), job)
            except Moved:
                threading.Event().wait(PAUSE_S)
        return None


def _all_documents(log: LogReader, folder: str = "") -> Iterator[tuple[str, bytes]]:
    """The documents below a folder, with their paths."""
    below = f"{folder}/" if folder else ""
    for name in log.list_documents(folder):
        document = log.get_document(f"{below}{name}")
        if document is not None:
            yield f"{below}{name}", document.data
    for name in log.list_folders(folder):
        yield from _all_documents(log, f"{below}{name}")
