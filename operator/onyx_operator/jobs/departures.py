"""Jobs whose objects are gone: they are killed in the log, which knows whose they are.

That an object is gone is told by the watch, or found: a job that runs in a log and whose object is
not listed any more in a namespace that is looked after. So nothing waits for the operator when an
object is deleted, or its namespace with all that is in it and the operator, too; whoever follows
that log next kills the job. Rejected: a finalizer. It must be taken away by an operator with the
right to do so, and both may be deleted before the object; then the namespace never ends.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from onyx.errors import Unavailable
from onyx.ids import JobId
from onyx.replica.commands.kill_job import KillJob
from onyx.settings import Settings
from onyx_operator.connection import connection
from onyx_operator.context import Operator
from onyx_operator.jobs.act import Actor
from onyx_operator.jobs.actions import Tell
from onyx_operator.jobs.record import read_record
from onyx_operator.kube import JOBS, KubeError, Object
from onyx_operator.logs.owners import Owner, owner_of
from onyx_operator.logs.view import LogView
from onyx_operator.logs.views import LogViews
from onyx_operator.work_queue import Key, Reconciler

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Departed:
    """An object that is gone, and where its job is."""

    body: Object
    settings: Settings
    since_s: float


class Departures:
    """See the module. Belongs to one event loop."""

    def __init__(
        self, operator: Operator, views: LogViews, actor: Actor, now_s: Callable[[], float]
    ) -> None:
        self._operator, self._views, self._actor, self._now_s = operator, views, actor, now_s
        self._timeout_s = operator.settings.jobs.release_timeout_s
        self._departed: dict[Key, _Departed] = {}
        self._parted: dict[Key, tuple[Settings, float]] = {}
        self._reconciler = Reconciler(
            "deletion", self._look, operator.settings.jobs, operator.metrics
        )

    async def run(self) -> None:
        """Kill what is to be killed, until cancelled."""
        await self._reconciler.run()

    def wanted(self) -> Iterable[Settings]:
        """The logs in which something is left to be killed."""
        self._parted = {
            key: (settings, since_s)
            for key, (settings, since_s) in self._parted.items()
            if self._now_s() - since_s < self._timeout_s
        }
        yield from (each.settings for each in self._departed.values())
        yield from (settings for settings, _ in self._parted.values())

    def cluster_gone(self, key: Key, body: Object) -> None:
        """An OnyxCluster is gone: its log is remembered for jobs that go with it."""
        settings = connection(body, self._operator.settings.engine)
        self._parted[key] = settings, self._now_s()

    def job_gone(self, body: Object, cluster: Key, settings: Settings | None) -> None:
        """An OnyxJob is gone. `settings`: of the log of its cluster, None if that is gone too."""
        if settings is None and cluster in self._parted:
            settings, _ = self._parted[cluster]
        if settings is None or read_record(body).finished:
            return
        metadata = body["metadata"]
        key = Key(metadata["namespace"], metadata["uid"])
        self._departed.setdefault(key, _Departed(body, settings, self._now_s()))
        self._reconciler.touch(key)

    async def search(self) -> None:
        """Find jobs in logs whose objects have gone unseen; done again after each list."""
        for settings, view in self._views.items():
            strays = [each for each in view.owners() if not self._is_there(each)]
            for namespace in sorted({each.namespace for each in strays}):
                if self._operator.jobs.covers(namespace):
                    with contextlib.suppress(KubeError, Unavailable):
                        await self._search(namespace, strays, settings)

    async def _search(self, namespace: str, strays: Iterable[Owner], settings: Settings) -> None:
        """The owners come from before the list: each was there before, if it was there at all."""
        listed = await self._operator.kube.list_all(JOBS, namespace)
        there = {each["metadata"]["uid"] for each in listed}
        for owner in strays:
            if owner.namespace == namespace and owner.uid not in there:
                logger.warning("OnyxJob %s is gone, and its job still runs", owner.key)
                self.job_gone(_object(owner), Key("", ""), settings)

    def _is_there(self, owner: Owner) -> bool:
        body = self._operator.jobs.store.get(owner.key)
        return body is not None and body["metadata"]["uid"] == owner.uid

    async def _look(self, key: Key) -> None:
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
        """Kill all jobs of an object. One that was only meant is killed too: its submission, which
        may be under way, then comes too late."""
        owner, record = owner_of(body, self._operator.kube.mark), read_record(body)
        doomed = dict.fromkeys(view.owned(owner.key).get(owner.uid, ()))
        known = (each.job_id for each in (record, record.upgraded_from) if each is not None)
        doomed |= {job: None for job in known if job and view.stage_of(job) == "live"}
        meant = record.job_id if not record.submitted_at else None
        if meant is not None and view.stage_of(meant) == "unknown":
            doomed[meant] = None
        for job in doomed:
            await self._actor.tell(body, view, Tell(KillJob(job=job)))

    async def _give_up(self, body: Object, why: str) -> None:
        """Say what is left behind; it is searched for again when the log is found."""
        job: JobId | None = read_record(body).job_id
        message = (
            f"its object was deleted, and job {job} may go on, it could not be killed: {why}; it "
            "is killed when an operator follows that log again, or by `onyx kill`"
        )
        logger.warning("OnyxJob %s: %s", body["metadata"]["name"], message)
        await self._operator.kube.event(body, "LeftRunning", message, warning=True)


def _object(owner: Owner) -> Object:
    """An object that is gone, as far as its owner's name tells."""
    metadata = {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid}
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": metadata}
