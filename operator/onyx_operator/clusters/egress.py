"""Where the pods of a cluster may go, if its owner limits that. Pure.

The owner lists what jobs need: stores, brokers, endpoints. What the cluster needs of itself follows
from its other keys: its own pods, DNS, ZooKeeper, its Spark server. A ZooKeeper that is a Service
is reached in its namespace alone, one that is an address there alone. Another name is resolved
after the policy is made, so its port is open to all addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from onyx_operator.clusters.pool import Pool
from onyx_operator.connection import hosts_of

Rule = dict[str, Any]
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_DNS: Rule = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def limited(spec: Rule, pool: Pool, *own: Rule) -> Rule:
    """The spec of a NetworkPolicy that also says where its pods may go; as it is without a limit.

    Args:
        spec: what it says of who may come.
        pool: whose pods they are.
        own: where they have to go by themselves.
    """
    wanted = pool.cluster.network_policy.egress
    if wanted is None:
        return spec
    rules = [*own, _DNS, *(dict(each) for each in wanted)]
    return {**spec, "policyTypes": ["Ingress", "Egress"], "egress": rules}


def to(pods: Mapping[str, str], *ports: Rule) -> Rule:
    """A rule for pods with these labels, in the namespace of the cluster."""
    return {"to": [{"podSelector": {"matchLabels": dict(pods)}}], "ports": list(ports)}


def to_zookeeper(pool: Pool) -> list[Rule]:
    """A rule for each server."""
    return [_to(host, port, pool.namespace) for host, port in hosts_of(pool.zookeeper_address)]


def _to(host: str, port: int, namespace: str) -> Rule:
    peer, ports = _peer(host, namespace), [{"port": port, "protocol": "TCP"}]
    return {"to": [peer], "ports": ports} if peer else {"ports": ports}


def _peer(host: str, namespace: str) -> Rule | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        pass
    else:
        return {"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}
    name = host.removesuffix(".cluster.local")
    if name.endswith(".svc"):
        namespace = name.removesuffix(".svc").rpartition(".")[2]
    elif "." in name:
        return None
    return {"namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: namespace}}}
