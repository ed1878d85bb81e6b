"""Whether an OnyxCluster may have the tenancy of another one: the API server knows who is gone."""

from __future__ import annotations

from onyx.settings import Settings
from onyx_operator.connection import tenancy_of
from onyx_operator.kube import CLUSTERS, Kube
from onyx_operator.tenants import read_tenant


async def inherits(kube: Kube, former: str, settings: Settings) -> bool:
    """Whether the tenancy of a former owner is that of some settings now.

    Raises:
        KubeError, Unavailable: the API server refuses, or cannot be reached.
    """
    ours, theirs = read_tenant(settings.tenancy_owner), read_tenant(former)
    if ours is None or theirs is None:
        return False
    if ours.is_same(theirs):
        return True
    if not ours.may_follow(theirs):
        return False
    there = await kube.get(CLUSTERS, theirs.namespace, theirs.name)
    return there is None or tenancy_of(there) != settings.tenancy_id
