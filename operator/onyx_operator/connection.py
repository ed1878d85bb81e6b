"""From an OnyxCluster to the log of its cluster: the one module that knows the defaults.

Workers (their environment) and the operator (its subscription) must agree on tenancy, address and
job scheduler, so both are derived here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from onyx.settings import Settings, TlsSettings


def connection(cluster: Mapping[str, Any], base: Settings) -> Settings:
    """The engine's settings for the log of an OnyxCluster.

    The operator's own certificates and account are used for a cluster that has such, too, and for
    no other: a log made under an account is closed to workers without one.

    Args:
        cluster: the OnyxCluster object.
        base: how ZooKeeper is reached (timeouts, certificates, account), and its address when the
            cluster names none.
    """
    spec = cluster.get("spec") or {}
    named = spec.get("zookeeper") or {}
    zookeeper = replace(base.zookeeper, address=named.get("address") or base.zookeeper.address)
    if not (spec.get("tls") or {}).get("zookeeper"):
        zookeeper = replace(zookeeper, tls=TlsSettings())
    if not named.get("authSecret"):
        zookeeper = replace(zookeeper, auth_user="", auth_password_file="")
    return replace(
        base,
        tenancy_id=tenancy_of(cluster),
        job_scheduler=spec.get("jobScheduler") or base.job_scheduler,
        zookeeper=zookeeper,
    )


def tenancy_of(cluster: Mapping[str, Any]) -> str:
    """The tenancy of an OnyxCluster: its namespace and name unless it names one."""
    metadata, spec = cluster["metadata"], cluster.get("spec") or {}
    return str(spec.get("tenancyId") or f"{metadata['namespace']}.{metadata['name']}")
