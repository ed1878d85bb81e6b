"""All OnyxJobs of one operator: what is known of them, and the look at one.

A look reads nothing over the network unless it must: objects come by the watch, jobs by the
subscription to their cluster's log. It carries out plans until there is nothing left to do, writes
the status if it differs, and tells what is new as events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from onyx.errors import JobRefused, OnyxError, Problem, Unavailable, UserError
from onyx.ids import JobId
from onyx.model.crd.status import PHASES
from onyx.model.declaration import JobRef
from onyx.settings import Settings, ZooKeeperSettings
from onyx_operator.conditions import by_type, change
from onyx_operator.connection import connection
from onyx_operator.context import Operator
from onyx_operator.jobs.act import Actor
from onyx_operator.jobs.actions import DeleteObject
from onyx_operator.jobs.check import hints
from onyx_operator.jobs.departures import Departures
from onyx_operator.jobs.observed import Seen
from onyx_operator.jobs.plan import Plan, plan, seconds
from onyx_operator.jobs.record import read_record
from onyx_operator.jobs.spec import Spec, read_spec, reference
from onyx_operator.jobs.status import status
from onyx_operator.jobs.versions import ids_of_interest, to_upgrade
from onyx_operator.kube import CLUSTERS, CONFIG_MAPS, JOBS, Conflict, KubeError, NotFound, Object
from onyx_operator.logs.owners import owner_of
from onyx_operator.logs.state import Log, Trouble
from onyx_operator.logs.view import CONNECTING, LogView
from onyx_operator.logs.views import LogViews
from onyx_operator.work_queue import Key, Reconciler

logger = logging.getLogger(__name__)

PLANS_MAX = 8
"""Plans that are carried out in one look; the rest is left to the next one."""
CHECK_TIMEOUT_S = 2.0
"""Longest wait for the API server by whoever applies a job."""
COUNT_INTERVAL_S = 5.0
"""Period at which the jobs are counted by phase."""
_QUIET = (
    "Submitted",
    "WaitingForPeers",
    "Starting",
    "Connecting",
    "Draining",
    "Suspended",
    "Deleted",
)
"""Reasons of a status that an action has told of already, or that pass at once."""
_WRONG_PHASES = ("Failed", "Invalid", "Unknown")
_WRONG_REASONS = ("Displaced", "UpgradeRefused", "BackOff", "Retrying")
_WRONG_PLACES = ("ClusterNotFound", "ClusterNotReady", "LogUnreachable", "TooManyClusters")
_WARNING = frozenset((*_WRONG_PHASES, *_WRONG_REASONS, *_WRONG_PLACES))
"""Phases and reasons that tell of something wrong."""


class Jobs:
    """See the module. Belongs to one event loop."""

    def __init__(self, operator: Operator, now_s: Callable[[], float] = time.time) -> None:
        settings = operator.settings.jobs
        self._operator = operator
        self._settings = settings
        self._now_s = now_s
        self._actor = Actor(operator.kube, operator.metrics)
        self._views = LogViews(
            settings, operator.connect, self._on_log, operator.metrics, operator.kube.mark
        )
        self._departures = Departures(operator, self._views, self._actor, now_s)
        self._reconciler = Reconciler(JOBS.kind, self.look, settings, operator.metrics)
        self._jobs, self._clusters = operator.jobs.store, operator.clusters.store
        operator.jobs.listen(self._job_changed)
        operator.jobs.after_list(self._search)
        operator.clusters.listen(self._cluster_changed)
        self._owners: dict[JobId, Key] = {}
        self._specs: dict[Key, tuple[Any, Spec]] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._files: dict[tuple[str, JobRef], tuple[float, str | None]] = {}

    async def run(self) -> None:
        """Reconcile until cancelled; then the logs are let go."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reconciler.run())
                group.create_task(self._departures.run())
                group.create_task(self._every(self._settings.resync_interval_s, self._tidy))
                group.create_task(self._every(COUNT_INTERVAL_S, self._count))
                group.create_task(
                    self._every(self._settings.progress_interval_s, self._views.learn_progress)
                )
        finally:
            await self._views.keep(())

    def _job_changed(self, key: Key, body: Object, gone: bool) -> None:
        if not gone:
            self._reconciler.touch(key)
            return
        self._forget(key)
        cluster = self._cluster_of(body)
        settings = self._connection(cluster)
        known = settings if isinstance(settings, Settings) else None
        self._departures.job_gone(body, cluster, known)

    def _cluster_changed(self, key: Key, body: Object, gone: bool) -> None:
        """The jobs of a cluster are looked at; its log is followed even if it has none, because
        there may be jobs in it whose objects are gone."""
        if gone:
            self._departures.cluster_gone(key, body)
        elif isinstance(settings := self._connection(key), Settings):
            self._views.view(settings)
        for job_key, job in self._jobs.items():
            if self._cluster_of(job) == key:
                self._reconciler.touch(job_key)

    async def check(self, body: Mapping[str, Any]) -> tuple[Sequence[Problem], Sequence[Problem]]:
        """Problems and warnings of an OnyxJob that is about to be stored, as far as is known of its
        namespace."""
        key = self._cluster_of(body)
        if not self._operator.clusters.covers(key.namespace):
            return (), ()
        cluster = self._clusters.get(key)
        if cluster is None:  # perhaps it has just been made
            with contextlib.suppress(KubeError, Unavailable, TimeoutError):
                async with asyncio.timeout(CHECK_TIMEOUT_S):
                    cluster = await self._operator.kube.get(CLUSTERS, key.namespace, key.name)
        return (), hints(body, cluster)

    async def look(self, key: Key) -> None:
        """Have one OnyxJob be as its spec says, and say how it is.

        Raises:
            Unavailable, KubeError: the API server or the log cannot be reached, or refuses.
        """
        body = self._jobs.get(key)
        if body is None:
            return
        try:
            await self._look(key, body)
        except NotFound:
            self._forget(self._jobs.drop(body))
        except Conflict:
            fresh = await self._operator.kube.get(JOBS, key.namespace, key.name)
            if fresh is not None:
                self._jobs.put(fresh)
                self._reconciler.touch(key)

    async def _look(self, key: Key, body: Object) -> None:
        spec = self._spec(key, body, await self._referenced(body))
        view = self._view(spec)
        seen = await self._see(key, spec, body, view)
        if isinstance(seen.log, Trouble) and seen.log.reason == CONNECTING:
            return  # what comes of it is told by the view
        found = self._plan(spec, seen)
        for _ in range(PLANS_MAX):
            if not found.actions:
                break
            try:
                for action in found.actions:
                    log = view if isinstance(view, LogView) else None
                    body = await self._actor.do(action, body, spec, log)
                    self._jobs.put(body)
                    if isinstance(action, DeleteObject):
                        await self._tell_end(found, body)
                        return
            except (UserError, JobRefused) as error:
                wait_s = self._settings.retry_max_s
                found = Plan((), "Invalid", "Refused", str(error), wait_s)
                break
            seen = await self._see(key, spec, body, view)
            found = self._plan(spec, seen)
        if not _ended_before(spec, seen):
            await self._tell(spec, seen, found, body)
        self._again(key, found.again_in_s)

    def _spec(self, key: Key, body: Object, referenced: str | None) -> Spec:
        """The object's spec; it is checked again only when it has changed."""
        metadata = body["metadata"]
        read_from = (metadata["uid"], body.get("spec"), referenced)
        known = self._specs.get(key)
        if known is None or known[0] != read_from:
            known = self._specs[key] = (read_from, read_spec(body, referenced))
        return replace(
            known[1],
            generation=metadata.get("generation", 0),
            deleted_at=metadata.get("deletionTimestamp") or "",
        )

    def _plan(self, spec: Spec, seen: Seen) -> Plan:
        return plan(spec, seen)

    async def _see(self, key: Key, spec: Spec, body: Object, view: LogView | Trouble) -> Seen:
        record = read_record(body)
        ids = ids_of_interest(spec, record)
        if isinstance(view, LogView):
            ids = ids_of_interest(spec, record, view.stage_of)
        for job in ids:
            self._owners[job] = key
        if isinstance(view, LogView):
            with contextlib.suppress(Unavailable):
                for job in ids:
                    await view.learn(job)
        owner = owner_of(body, self._operator.kube.mark)
        log = view.seen(ids, owner) if isinstance(view, LogView) else view
        old = to_upgrade(spec, record, log) if isinstance(log, Log) else None
        upgrade = None
        if old is not None:
            assert isinstance(view, LogView)
            assert spec.job is not None
            assert old.job_id is not None
            upgrade = await view.upgrade(spec.job, old.job_id)
        now_s, status = self._now_s(), body.get("status") or {}
        return Seen(
            now_s,
            record,
            log,
            invalid_s=_invalid_s(status, now_s),
            told=status.get("observedGeneration") == body["metadata"].get("generation"),
            upgrade=upgrade,
        )

    async def _tell(self, spec: Spec, seen: Seen, found: Plan, body: Object) -> None:
        """Write the status if it has changed, and an event if its reason has."""
        before = body.get("status") or {}
        difference = change(before, status(spec, seen, found, before))
        if not difference:
            return
        self._jobs.put(await self._actor.write_status(body, difference))
        told = (before.get("phase"), before.get("reason"))
        if told != (found.phase, found.reason) and found.reason not in _QUIET:
            warning = not {found.phase, found.reason}.isdisjoint(_WARNING) or spec.problem != ""
            await self._operator.kube.event(body, found.reason, found.message, warning=warning)

    async def _tell_end(self, found: Plan, body: Object) -> None:
        if found.reason not in _QUIET:
            warning = found.phase in _WARNING
            await self._operator.kube.event(body, found.reason, found.message, warning=warning)

    def _again(self, key: Key, wait_s: float | None) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if wait_s is not None:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(wait_s, self._reconciler.touch, key)

    def _cluster_of(self, body: Mapping[str, Any]) -> Key:
        """Which OnyxCluster an OnyxJob belongs to, whether its spec is right or not."""
        name = (body.get("spec") or {}).get("clusterRef")
        default = Spec("", "", "", 0).declaration.cluster_ref
        return Key(body["metadata"]["namespace"], name if isinstance(name, str) else default)

    def _connection(self, cluster: Key) -> Settings | Trouble:
        body = self._clusters.get(cluster)
        if body is None:
            told = f"there is no OnyxCluster {cluster.name} in namespace {cluster.namespace}"
            told = f"{told}: make it, or correct spec.clusterRef"
            return Trouble("ClusterNotFound", told, without_workers=True)
        engine = self._operator.settings.engine
        named = ((body.get("spec") or {}).get("zookeeper") or {}).get("address")
        if not named and engine.zookeeper.address == ZooKeeperSettings().address:
            told = f"OnyxCluster {cluster.name} names no ZooKeeper: set its spec.zookeeper.address"
            return Trouble("ClusterNotReady", told)
        return connection(body, engine)

    def _view(self, spec: Spec) -> LogView | Trouble:
        body = self._jobs.get(Key(spec.namespace, spec.name))
        assert body is not None
        settings = self._connection(self._cluster_of(body))
        return settings if isinstance(settings, Trouble) else self._views.view(settings)

    async def _referenced(self, body: Object) -> str | None:
        """The text of the job file that an object refers to; not read again at every look."""
        ref = reference(body) if (body.get("spec") or {}).get("jobRef") else None
        if ref is None:
            return None
        namespace, now_s = body["metadata"]["namespace"], self._now_s()
        read_s, text = self._files.get((namespace, ref), (0.0, None))
        if text is None or now_s - read_s >= self._settings.resync_interval_s:
            found = await self._operator.kube.get(CONFIG_MAPS, namespace, ref.config_map)
            text = ((found or {}).get("data") or {}).get(ref.key)
            self._files[namespace, ref] = (now_s, text)
        return text

    def _on_log(self, jobs: Collection[JobId] | None) -> None:
        """Some jobs have changed in their log; None: any may have."""
        if jobs is None:
            for key in self._jobs:
                self._reconciler.touch(key)
            self._search()
            return
        for job in jobs:
            if job in self._owners:
                self._reconciler.touch(self._owners[job])

    async def _tidy(self) -> None:
        """Let go of what nobody needs any more: logs of clusters that are gone, files."""
        wanted = [self._connection(key) for key in self._clusters]
        found = {each for each in wanted if isinstance(each, Settings)}
        await self._views.keep(found.union(self._departures.wanted()))
        self._files.clear()

    def _search(self) -> None:
        self._operator.background(self._departures.search())

    async def _count(self) -> None:
        phases = Counter((body.get("status") or {}).get("phase") for _, body in self._jobs.items())
        self._operator.metrics.jobs({phase: phases[phase] for phase in PHASES})

    async def _every(self, interval_s: float, do: Callable[[], Any]) -> None:
        while interval_s > 0:
            await asyncio.sleep(interval_s)
            try:
                await do()
            except OnyxError as error:
                logger.warning("%s", error)
            except Exception:
                logger.exception("a bug in the operator")

    def _forget(self, key: Key) -> None:
        self._again(key, None)
        self._specs.pop(key, None)
        self._owners = {job: owner for job, owner in self._owners.items() if owner != key}


def _ended_before(spec: Spec, seen: Seen) -> bool:
    """Whether the job has ended, and all is said of it: a log that is away is no news then."""
    ended = seen.record.finished and seen.record.version == spec.version
    return isinstance(seen.log, Trouble) and ended and seen.told


def _invalid_s(status: Mapping[str, Any], now_s: float) -> float:
    """For how long a spec has been wrong."""
    validated = by_type(status).get("Validated", {})
    since_s = seconds(str(validated.get("lastTransitionTime", "")))
    return 0.0 if since_s is None or validated.get("status") != "False" else now_s - since_s
