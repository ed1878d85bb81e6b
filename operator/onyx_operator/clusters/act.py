"""Step 3 for an OnyxCluster: carries out a plan against the API server, and reports each change.

An action that is refused does not keep the others from being carried out: a Service is of use
while a NetworkPolicy is not allowed.
"""

from __future__ import annotations

from dataclasses import replace

from onyx_operator.clusters.actions import Action, Apply
from onyx_operator.clusters.plan import Plan
from onyx_operator.clusters.spec import Refusal, as_declared
from onyx_operator.kube import Kube, KubeError, Object


async def act(kube: Kube, cluster: Object, plan: Plan) -> Plan | None:
    """Carry out a plan. None when that succeeded, else the plan with what was refused.

    Raises:
        Unavailable: the API server cannot be reached.
    """
    refused: list[KubeError] = []
    for action in plan.actions:
        try:
            await _carry_out(kube, cluster, action)
        except KubeError as error:
            refused.append(error)
    if not refused:
        return None
    trouble = Refusal("ApplyFailed", "; ".join(as_declared(str(each)) for each in refused))
    return replace(plan, trouble=trouble, error=refused[0])


async def _carry_out(kube: Kube, cluster: Object, action: Action) -> None:
    if isinstance(action, Apply):
        child = action.child
        now = await kube.apply(child.resource, child.body)
        # A change that others revert, or the server drops, changes no version and is no news.
        if now["metadata"]["resourceVersion"] != action.version:
            verb = "Updated" if action.version else "Created"
            await kube.event(cluster, verb, f"{verb.lower()} {child.resource.kind} {child.name}")
        return
    namespace = cluster["metadata"]["namespace"]
    await kube.delete(action.resource, namespace, action.name, action.uid)
    await kube.event(cluster, "Deleted", f"deleted {action.resource.kind} {action.name}")
