"""From an OnyxCluster to the log of its cluster: the one module that knows the defaults, and to
which addresses the operator goes.

Workers (their environment) and the operator (its subscription) must agree on tenancy, address and
job scheduler, so both are derived here.

A tenancy belongs to a namespace, whose name it begins with, because whoever has a tenancy has its
jobs. How an address is written decides nothing: neither a name nor an IP address of the same
ZooKeeper makes the jobs of one namespace those of another.

Who has a tenancy stands in the root of its log (`Tenant`), so two clusters that may have it are
kept apart by whatever address they come. The name of an OnyxCluster is its identity, with the mark
of its API server, which in the operator's own settings is `tenancy_owner`: a cluster that is
deleted and made again goes on with its jobs. Its tenancy passes to another one of the same
namespace only when it is gone, or asks for another tenancy.

Whoever may write an OnyxCluster names its ZooKeeper. The operator has an account and certificates,
and stands where that author may not. So it goes to its own servers and those that its settings
list, in their spelling, and to no other. Rejected: to go anywhere without the account, which makes
the operator a way to every port that it reaches; and to compare what names resolve to, which their
owner changes later. So addresses are compared as texts, by their servers (`ZooKeeperHost`), in
whatever way they are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.settings import LogSettings, Settings, TlsSettings, ZooKeeperSettings
from onyx_operator.owners import Tenant
from onyx_operator.settings import OperatorSettings

_PORT = "2181"
_HOST_AND_PORT = re.compile(r"(.*?)(?::([0-9]+))?")


class NoLog(msgspec.Struct, frozen=True):
    """Why the operator does not go to the log of a cluster."""

    reason: str
    """One word, for conditions and events."""
    message: str


def connection(cluster: Mapping[str, Any], operator: OperatorSettings) -> Settings | NoLog:
    """The engine's settings for the log of an OnyxCluster, or why it can have none.

    The operator's own certificates are used for a cluster that has such, too, and for no other. Its
    account, if it has one, opens the account of the tenancy, which workers have; where the cluster
    names a Secret, workers have the operator's own account in there.

    Args:
        cluster: the OnyxCluster object.
        operator: how ZooKeeper is reached (timeouts, certificates, account), where that may be, and
            its address when the cluster names none.
    """
    base, spec = operator.engine, cluster.get("spec") or {}
    named = spec.get("zookeeper") or {}
    namespace, tenancy = cluster["metadata"]["namespace"], tenancy_of(cluster)
    is_own = tenancy.startswith(f"{namespace}.")
    if not is_own and f"{namespace}/{tenancy}" not in operator.tenancies:
        return NoLog(
            "TenancyNotAllowed",
            f"spec.tenancyId {tenancy} is not of this namespace: begin it with {namespace}. or let "
            f"whoever installs the operator add {namespace}/{tenancy} to ONYX_OPERATOR_TENANCIES",
        )
    address = _address(named.get("address"), namespace, operator)
    if isinstance(address, NoLog):
        return address
    zookeeper = replace(base.zookeeper, address=address)
    if not (spec.get("tls") or {}).get("zookeeper"):
        zookeeper = replace(zookeeper, tls=TlsSettings())
    zookeeper = replace(zookeeper, auth_per_tenancy=not named.get("authSecret"))
    return replace(
        base,
        tenancy_id=tenancy,
        tenancy_owner=str(Tenant(base.tenancy_owner, namespace, cluster["metadata"]["name"])),
        job_scheduler=spec.get("jobScheduler") or base.job_scheduler,
        zookeeper=zookeeper,
        log=limits_of(cluster, base.log),
    )


def limits_of(cluster: Mapping[str, Any], base: LogSettings) -> LogSettings:
    """What one job may have of an OnyxCluster, with what is said of logs besides."""
    quotas = (cluster.get("spec") or {}).get("quotas") or {}
    return replace(
        base,
        job_peers_max=quotas.get("peersPerJob") or base.job_peers_max,
        job_priority_max=quotas.get("priority", base.job_priority_max),
    )


def has_account_of_its_own(log: Settings) -> bool:
    """Whether the tenancy of a log has an account that is not the operator's."""
    return bool(log.zookeeper.auth_user) and log.zookeeper.auth_per_tenancy


def tenancy_of(cluster: Mapping[str, Any]) -> str:
    """The tenancy of an OnyxCluster: its namespace and name unless it names one."""
    metadata, spec = cluster["metadata"], cluster.get("spec") or {}
    return str(spec.get("tenancyId") or f"{metadata['namespace']}.{metadata['name']}")


def _address(named: str | None, namespace: str, operator: OperatorSettings) -> str | NoLog:
    """Where the operator reaches the ZooKeeper of a cluster, as its own settings write it."""
    own = operator.engine.zookeeper.address
    configured = own != ZooKeeperSettings().address  # the default is a laptop's: no pod reaches it
    if named is None and configured:
        return own
    if named is None:
        return NoLog(
            "ZooKeeperAddressMissing",
            "spec.zookeeper.address is missing, and the operator was given no "
            "ONYX_ZOOKEEPER_ADDRESS: say where the log's ZooKeeper is, such as zookeeper:2181",
        )
    allowed: dict[ZooKeeperHost, str] = {}
    for text in (*((own,) if configured else ()), *operator.zookeeper_addresses):
        allowed |= servers_of(text)
    ways: dict[str, list[str]] = {written: [] for written in servers_of(named).values()}
    for server, written in as_read_in(namespace, named).items():
        ways[written] += [allowed[server]] if server in allowed else []
    if not ways or not all(ways.values()):
        return NoLog(
            "ZooKeeperNotAllowed",
            f"spec.zookeeper.address {named} has a server to which the operator may not go: "
            "leave the address out, or let whoever installs the operator add each of its servers "
            "to ONYX_OPERATOR_ZOOKEEPER_ADDRESSES",
        )
    _, slash, path = named.strip().partition("/")
    return ",".join(found[0] for found in ways.values()) + f"{slash}{path}".rstrip("/")


class ZooKeeperHost(msgspec.Struct, frozen=True):
    """One server of ZooKeeper, and the path below which a log is there."""

    host: str
    """In small letters; the name of a Service without what stands behind its namespace."""
    port: str
    path: str


def servers_of(address: str) -> dict[ZooKeeperHost, str]:
    """The servers of an address such as `a:2181,b:2181/path`, each as it is written there."""
    hosts, slash, path = address.strip().partition("/")
    found: dict[ZooKeeperHost, str] = {}
    for written in _parts(hosts):
        name, _, port = written.rpartition(":") if written.count(":") == 1 else (written, "", _PORT)
        short = _full(name).removesuffix(".cluster.local").removesuffix(".svc")
        found[ZooKeeperHost(short, port, f"{slash}{path}".rstrip("/"))] = written
    return found


def hosts_of(address: str) -> list[tuple[str, int]]:
    """Host and port of each server of an address, the host as it is written."""
    found = []
    for written in _parts(address.strip().partition("/")[0]):
        host, port = _HOST_AND_PORT.fullmatch(written).groups()  # type: ignore[union-attr]
        found.append((_full(host), int(port or _PORT)))
    return found


def as_read_in(namespace: str, address: str) -> dict[ZooKeeperHost, str]:
    """The servers of an address, as pods of a namespace read it: a name may be that of a Service of
    their own namespace."""
    found = servers_of(address)
    for server, written in list(found.items()):
        if _full(written.partition(":")[0]) == server.host:
            found[msgspec.structs.replace(server, host=f"{server.host}.{namespace}")] = written
    return found


def _parts(hosts: str) -> list[str]:
    return [part.strip() for part in hosts.split(",") if part.strip()]


def _full(name: str) -> str:
    return name.lower().rstrip(".")
