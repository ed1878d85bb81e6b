"""The reconciler of OnyxClusters, what makes it reconcile one, and its step 3, which carries out a
plan against the API server and reports each change.

An action that is refused does not keep the others from being carried out: a Service is of use
while a NetworkPolicy is not allowed.

What is drawn for a Secret is made once, and the operator cannot read it. The token of a Spark
server is random: another one is as good. The account of a tenancy opens what was stored under it,
so it follows from the name of the tenancy and the operator's own account: when the Secret is
deleted, or the cluster is made again, it is the same one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from onyx.errors import SettingsError, Unavailable
from onyx.log.tenancy import Usage
from onyx.log.zookeeper.access import account_of
from onyx.reports.deaths import Death
from onyx.settings import Settings
from onyx_operator.clusters.mounts import SPARK_TOKEN_KEY
from onyx_operator.clusters.observe import observe, referring_jobs
from onyx_operator.clusters.observed import ClusterObservation
from onyx_operator.clusters.plan import Action, Apply, ClusterPlan, Draw, plan
from onyx_operator.clusters.pool import CLUSTER_LABEL, Pool
from onyx_operator.clusters.resources import ACCOUNT_TYPE
from onyx_operator.clusters.spec import ClusterRefusal, as_declared
from onyx_operator.clusters.status import news, status
from onyx_operator.connection import connection
from onyx_operator.context import OperatorProcess
from onyx_operator.kube import Conflict, Kube, KubeError, Object
from onyx_operator.logs.state import TAKEN, Trouble
from onyx_operator.reconciler import ObjectKind, Reconciler
from onyx_operator.work_queue import ObjectKey


class Clusters:
    """The controller of all OnyxClusters. Belongs to one event loop. What no watch shows (drift of
    other objects, a ConfigMap of code) is found because each list touches every cluster."""

    def __init__(
        self,
        operator: OperatorProcess,
        deaths: Callable[[Settings], Sequence[Death]] = lambda _: (),
        usage: Callable[[Settings], Usage | None] = lambda _: None,
        trouble: Callable[[Settings], Trouble | None] = lambda _: None,
    ) -> None:
        """
        Args:
            deaths: of worker processes lately, by the log of their cluster.
            usage: what its tenancy holds, by its log.
            trouble: why its log cannot be used.
        """
        self._operator, self._trouble = operator, trouble
        self._deaths, self._usage = deaths, usage
        pace, metrics = operator.settings.clusters, operator.metrics
        # One plan: an object that others change back would be applied again and again.
        kind = ObjectKind(self._observe, plan, self._act, status, news, plans_max=1)
        self._reconciler = Reconciler(kind, operator.clusters, operator.kube, pace, metrics)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        self._operator.clusters.listen(self._changed)
        await self._reconciler.run()

    def workers_changed(self, body: Object) -> None:
        """A StatefulSet has changed."""
        cluster = (body["metadata"].get("labels") or {}).get(CLUSTER_LABEL)
        if cluster:
            self._reconciler.touch(ObjectKey(body["metadata"]["namespace"], cluster))

    def logs_turned(self) -> None:
        """A log was found or lost, which conditions say."""
        for key in self._operator.clusters.store:
            self._reconciler.touch(key)

    async def _observe(self, _: ObjectKey, body: Object) -> ClusterObservation:
        found = await observe(self._operator, body)
        log = connection(body, self._operator.settings)
        if not isinstance(log, Settings):
            return found
        trouble = self._trouble(log) if isinstance(found.wanted, Pool) else None
        if trouble is not None and trouble.reason == TAKEN:
            found = replace(found, wanted=ClusterRefusal(TAKEN, trouble.message))
        return replace(found, trouble=trouble, deaths=self._deaths(log), usage=self._usage(log))

    async def _act(
        self, body: Object, _: ClusterObservation, plan: ClusterPlan
    ) -> ClusterPlan | None:
        log = connection(body, self._operator.settings)
        assert isinstance(log, Settings), "else there is nothing to do"
        return await act(self._operator.kube, body, log, plan)

    def _changed(self, key: ObjectKey, body: Object, gone: bool) -> None:
        if gone:
            self._reconciler.forget(key)
            for other in self._operator.tenancies.forget(body):
                self._reconciler.touch(other)
            self._operator.background(self._warn_jobs(body))
        else:
            self._reconciler.touch(key)

    async def _warn_jobs(self, cluster: Mapping[str, Any]) -> None:
        """Warn jobs that are left without workers, with an event each; best effort."""
        metadata, kube = cluster["metadata"], self._operator.kube
        with contextlib.suppress(KubeError, Unavailable):
            for job in await referring_jobs(kube, metadata["namespace"], metadata["name"]):
                message = f"its OnyxCluster {metadata['name']} was deleted, and with it all workers"
                await kube.event(job, "ClusterDeleted", message, warning=True)


async def act(kube: Kube, cluster: Object, log: Settings, plan: ClusterPlan) -> ClusterPlan | None:
    """Carry out a plan. None when that succeeded, else the plan with what was refused.

    Args:
        kube: the API server.
        cluster: the OnyxCluster object.
        log: how the operator reaches its log.
        plan: what to do.

    Raises:
        Unavailable: the API server cannot be reached.
    """
    refused: list[tuple[Action, KubeError]] = []
    for action in plan.actions:
        try:
            await _carry_out(kube, cluster, log, action)
        except KubeError as error:
            refused.append((action, error))
    if not refused:
        return None
    said = "; ".join(
        f"{_object(action)}: {as_declared(str(error), _pods_key(action))}"
        for action, error in refused
    )
    return replace(plan, trouble=ClusterRefusal("ApplyFailed", said), error=refused[0][1])


def _pods_key(action: Action) -> str:
    return action.child.pods_key if isinstance(action, Apply) else ""


async def _carry_out(kube: Kube, cluster: Object, log: Settings, action: Action) -> None:
    if isinstance(action, Apply):
        child = action.child
        now = await kube.apply(child.resource, child.body)
        # A change that others revert, or the server drops, changes no version and is no news.
        if now["metadata"]["resourceVersion"] != action.version:
            verb = "Updated" if action.version else "Created"
            await kube.event(cluster, verb, f"{verb.lower()} {_object(action)}")
        return
    if isinstance(action, Draw):
        data = await asyncio.to_thread(_content, action.child.body, log)
        secret = {**action.child.body, "data": data}
        with contextlib.suppress(Conflict):  # somebody was first
            await kube.create(action.child.resource, secret)
            await kube.event(cluster, "Created", f"created {_object(action)}")
        return
    namespace = cluster["metadata"]["namespace"]
    await kube.delete(action.resource, namespace, action.name, action.uid)
    await kube.event(cluster, "Deleted", f"deleted {_object(action)}")


def _content(secret: Mapping[str, Any], log: Settings) -> dict[str, str]:
    """What a Secret of a cluster is to hold, as the API takes it.

    Raises:
        Unavailable: the operator's own password cannot be read.
    """
    drawn = {SPARK_TOKEN_KEY: secrets.token_urlsafe()}
    if secret["type"] == ACCOUNT_TYPE:
        try:
            user, password = account_of(log.tenancy_id, log.zookeeper)
        except SettingsError as error:
            raise Unavailable(str(error)) from error
        drawn = {"user": user, "password": password}
    return {key: base64.b64encode(text.encode()).decode() for key, text in drawn.items()}


def _object(action: Action) -> str:
    """The object that an action is about, as its owner knows it."""
    if isinstance(action, Apply | Draw):
        return f"{action.child.resource.kind} {action.child.name}"
    return f"{action.resource.kind} {action.name}"
