"""Make a savepoint: one job, as it is at one moment, for another job to begin with.

The moment is that of a backup (`capture`). What the job's outputs have committed and not published
stays with the job, because it may go on: so savepoint and job share no row. Only of a job without
peers, which publishes nothing now, whoever begins with the savepoint does so in its place.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from onyx import __version__
from onyx.backup.capture import JobCapture, JobPoint, comparable
from onyx.backup.making import ROUNDS_MAX, JobPoints
from onyx.client.client import Client
from onyx.client.manifests import manifest
from onyx.errors import Unavailable, UserError
from onyx.ids import JobId
from onyx.log import documents
from onyx.log.interface import LogReader
from onyx.model.job import Job, Upgrade
from onyx.plugins.journalled.partitions import journal_in
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.state.location import LOCATION_NAME
from onyx.state.savepoint import SavepointManifest, SavepointPlace
from onyx.submission.upgrades import state_holder
from onyx.task.recovery.savepoint import LAYOUTS
from onyx.task.source.frontier import Frontier
from onyx.upgrade.plan import compare


class SavepointMaker:
    """Makes savepoints of the jobs of one cluster.

    Args:
        say: hears what somebody should know, such as that a job is paused for a moment.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        place: SavepointPlace,
        say: Callable[[str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._settings = settings
        self._place = place
        self._say = say
        self._now_ms = now_ms

    def make(self, job: JobId, name: str) -> SavepointManifest:
        """Make one of a job; what is in it.

        Raises:
            UserError: the place, the name or the location of state is wrong, or the job has no
                state that another one could begin with.
            Unavailable: something does not answer, or the job keeps changing.
        """
        wall_ms, log = self._now_ms(), self._client.log
        saved = manifest(log, self._client.replica(), job)
        self._check(saved, job)
        writer = self._place.begin(name)
        capture = JobCapture(log, self._settings, writer.put, lambda _: None)
        replica, point = self._point(JobPoints(self._client, capture, self._say), job)
        record = replica.records[job]
        query = _committed(log, job, point)
        named = (record.spec.digest, *(each.digest for each in record.partitions.values()))
        prefix, own = f"{job}/", f"{job}/{LOCATION_NAME}"
        found = SavepointManifest(
            __version__,
            self._settings.tenancy_id,
            wall_ms,
            job,
            {entry.name: entry.type for entry in saved.catalog},
            LAYOUTS,
            replace(record.spec, upgrades=None, owner=""),
            dict(record.partitions.items()),
            record.ready_version,
            record.run is None or not record.run.allocation,
            self._frontiers(job, point),
            query,
            [writer.put(each, log.get_chunk(each)) for each in sorted({*named} - {""})],
            [
                replace(each, name=each.name.removeprefix(prefix))
                for each in point.files.files
                if each.name != own
            ],
        )
        writer.finish(found)
        return found

    def _check(self, saved: Job, job: JobId) -> None:
        """Raises UserError: nobody could begin with a savepoint of the job."""
        replica = self._client.replica()
        if self._is_over(job):
            raise UserError(f"job {job} has completed: it has no state to save")
        loaded = replica.loaded(job)
        if loaded is not None:
            raise UserError(f"job {job} is the savepoint {loaded.place}, loaded: use that")
        holder = state_holder(self._client.log, replica, job)
        if holder != job:
            raise UserError(
                f"job {job} has not carried over the state of job {holder} yet: take the "
                f"savepoint when it runs, or one of {holder}"
            )
        for each in compare(saved, saved, Upgrade(from_job=job)).problems:
            if each.path == "spec.upgrade.from":
                raise UserError(f"job {job} cannot be saved: {each.message}")

    def _is_over(self, job: JobId) -> bool:
        replica = self._client.replica()
        return job not in replica.records or job in replica.completed_jobs

    def _point(self, moments: JobPoints, job: JobId) -> tuple[Replica, JobPoint]:
        for _ in range(ROUNDS_MAX):
            point = moments.point(job)
            if self._is_over(job):
                raise UserError(f"job {job} has completed: it has no state to save")
            replica = self._client.replica()
            if point is not None and point.record == comparable(replica.records[job]):
                return replica, point
        raise Unavailable(f"job {job} changes faster than it is copied: try again when it runs")

    def _frontiers(self, job: JobId, point: JobPoint) -> dict[int, bytes]:
        folder, found = f"{documents.frontiers(job)}/", dict[int, bytes]()
        for path, document in point.documents.items():
            if not path.startswith(folder):
                continue
            frontier: Frontier = documents.decoded(job, path, document.data, Frontier)
            if journal_in(frontier.cursor.state) not in (None, job):
                raise UserError(
                    f"job {job} reads in the journal of the job that it has upgraded: take the "
                    "savepoint when it has read more"
                )
            found[int(path.removeprefix(folder))] = document.data
        return found


def _committed(log: LogReader, job: JobId, point: JobPoint) -> bytes | None:
    """What the query of the job has committed at the point; None: it has none."""
    document = point.documents.get(documents.committed_query(job))
    if document is None:
        return None
    digest = documents.chunk_of(document)
    return document.data if digest is None else log.get_chunk(digest)
