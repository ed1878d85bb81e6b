"""Step 3 for an OnyxCluster: carries out a plan against the API server, and reports each change.

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
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from onyx.errors import SettingsError, Unavailable
from onyx.log.zookeeper.access import account_of
from onyx.settings import Settings
from onyx_operator.clusters.mounts import SPARK_TOKEN_KEY
from onyx_operator.clusters.plan import Action, Apply, ClusterPlan, Draw
from onyx_operator.clusters.resources import ACCOUNT_TYPE
from onyx_operator.clusters.spec import ClusterRefusal, as_declared
from onyx_operator.kube import Conflict, Kube, KubeError, Object


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
