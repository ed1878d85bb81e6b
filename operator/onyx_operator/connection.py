"""From an OnyxCluster to the log of its cluster: the one place that knows the defaults.

Workers (their environment) and the operator (its subscription) must agree on tenancy, address and
job scheduler, so both are derived here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onyx.settings import Settings


def connection(cluster: Mapping[str, Any], base: Settings) -> Settings:
    """The engine's settings for the log of an OnyxCluster.

    Args:
        cluster: the OnyxCluster object.
        base: how ZooKeeper is reached (timeouts, certificates), and its address when the cluster
            names none.
    """
    metadata, spec = cluster["metadata"], cluster.get("spec") or {}
    address = (spec.get("zookeeper") or {}).get("address") or base.zookeeper.address
    return replace(
        base,
        tenancy_id=spec.get("tenancyId") or f"{metadata['namespace']}.{metadata['name']}",
        job_scheduler=spec.get("jobScheduler") or base.job_scheduler,
        zookeeper=replace(base.zookeeper, address=address),
    )
