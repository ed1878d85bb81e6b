"""Jobs whose objects are gone: they are killed in the log, which names their owners.

The watch reports that an object is gone. What it misses is found by comparison: a job runs in a
log, and a list of a namespace that the operator watches does not have its owner. So no deletion
waits for the operator, not even that of a namespace with the operator in it; whichever operator
follows that log next kills the job. Rejected: a finalizer. Only an operator that still has the
right to can remove it, and both may be deleted before the object; then the namespace stays for
ever.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable

import msgspec

from onyx.errors import Unavailable
from onyx.ids import JobId
from onyx.replica.commands import KillJob
from onyx.settings import Settings
from onyx_operator.connection import connection
from onyx_operator.context import OperatorProcess
from onyx_operator.jobs.act import Actor
from onyx_operator.jobs.plan import ControlJob
from onyx_operator.jobs.record import read_record
from onyx_operator.kube import JOBS, KubeError, Object
from onyx_operator.logs.view import LogView, LogViews
from onyx_operator.owners import JobOwner, owner_of
from onyx_operator.work_queue import ObjectKey, WorkQueue

logger = logging.getLogger(__name__)


class _Departure(msgspec.Struct, frozen=True):
    """An object that is gone, and where its job is."""

    body: Object
    settings: Settings
    since_s: float


class Departures:
    """The OnyxJobs that are being deleted. Belongs to one event loop."""

    def __init__(
        self, operator: OperatorProcess, views: LogViews, actor: Actor, now_s: Callable[[], float]
    ) -> None:
        self._operator, self._views, self._actor, self._now_s = operator, views, actor, now_s
        self._timeout_s = operator.settings.jobs.release_timeout_s
        self._departed: dict[ObjectKey, _Departure] = {}
        self._parted: dict[ObjectKey, tuple[Settings, float]] = {}
        self._queue = WorkQueue("deletion", self._end, operator.settings.jobs, operator.metrics)

    async def run(self) -> None:
        """Kill what is to be killed, until cancelled."""
        await self._queue.run()

    def wanted(self) -> Iterable[Settings]:
        """The logs in which something is left to be killed."""
        self._parted = {
            key: (settings, since_s)
            for key, (settings, since_s) in self._parted.items()
            if self._now_s() - since_s < self._timeout_s
        }
        yield from (each.settings for each in self._departed.values())
        yield from (settings for settings, _ in self._parted.values())

    def cluster_gone(self, key: ObjectKey, body: Object) -> None:
        """An OnyxCluster is gone: its log is remembered for jobs that go with it."""
        settings = connection(body, self._operator.settings)
        if isinstance(settings, Settings):
            self._parted[key] = settings, self._now_s()

    def job_gone(self, body: Object, cluster: ObjectKey, settings: Settings | None) -> None:
        """An OnyxJob is gone. `settings`: of the log of its cluster, None if that is gone too."""
        if settings is None and cluster in self._parted:
            settings, _ = self._parted[cluster]
        if settings is None or read_record(body).finished:
            return
        metadata = body["metadata"]
        key = ObjectKey(metadata["namespace"], metadata["uid"])
        self._departed.setdefault(key, _Departure(body, settings, self._now_s()))
        self._queue.touch(key)

    async def search(self) -> None:
        """Find jobs in logs whose objects have gone unseen; done again after each list."""
        for settings, view in self._views.items():
            strays = [each for each in view.owners() if not self._is_there(each)]
            for namespace in sorted({each.namespace for each in strays}):
                if self._operator.jobs.covers(namespace):
                    with contextlib.suppress(KubeError, Unavailable):
                        await self._search(namespace, strays, settings)

    async def _search(self, namespace: str, strays: Iterable[JobOwner], settings: Settings) -> None:
        """The owners come from before the list: each was there before, if it was there at all."""
        listed = await self._operator.kube.list_all(JOBS, namespace)
        there = {each["metadata"]["uid"] for each in listed}
        for owner in strays:
            if owner.namespace == namespace and owner.uid not in there:
                logger.warning("OnyxJob %s is gone, and its job still runs", owner.key)
                self.job_gone(_object(owner), ObjectKey("", ""), settings)

    def _is_there(self, owner: JobOwner) -> bool:
        body = self._operator.jobs.store.get(owner.key)
        return body is not None and body["metadata"]["uid"] == owner.uid

    async def _end(self, key: ObjectKey) -> None:
        departed = self._departed.get(key)
        if departed is None:
            return
        view = self._views.view(departed.settings)
        trouble = view.trouble if isinstance(view, LogView) else view
        try:
            if trouble is not None:
                raise Unavailable(trouble.message)
            assert isinstance(view, LogView)
            await self._kill(departed.body, view)
        except Unavailable as error:
            if self._now_s() - departed.since_s < self._timeout_s:
                raise
            await self._give_up(departed.body, str(error))
        del self._departed[key]

    async def _kill(self, body: Object, view: LogView) -> None:
        """Kill all jobs of an object. One that was only intended is killed too: its submission,
        which may be under way, then comes too late."""
        owner, record = owner_of(body, self._operator.kube.mark), read_record(body)
        doomed = dict.fromkeys(view.owned(owner.key).get(owner.uid, ()))
        known = (each.job_id for each in (record, record.upgraded_from) if each is not None)
        doomed |= {job: None for job in known if job and view.stage_of(job) == "live"}
        intended = record.job_id if not record.submitted_at else None
        if intended is not None and view.stage_of(intended) == "unknown":
            doomed[intended] = None
        by = self._operator.authors.of_deletion(body)
        for job in doomed:
            await self._actor.control(body, view, ControlJob(KillJob(job=job)), by)

    async def _give_up(self, body: Object, why: str) -> None:
        """Report the job that is left; it is found again when the log can be reached."""
        job: JobId | None = read_record(body).job_id
        message = (
            f"its object was deleted, and job {job} may go on, it could not be killed: {why}; it "
            "is killed when an operator follows that log again, or by `onyx kill`"
        )
        logger.warning("OnyxJob %s: %s", body["metadata"]["name"], message)
        await self._operator.kube.event(body, "LeftRunning", message, warning=True)


def _object(owner: JobOwner) -> Object:
    """An object that is gone, as far as its owner's name identifies it."""
    metadata = {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid}
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": metadata}
