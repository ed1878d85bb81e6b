"""Attacked: what workers reach, by jobs and modules that name other servers. With `egress` they go
to each other, DNS, ZooKeeper and what their owner lists."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.clusters import SPARK, cluster, pool

from onyx.errors import ManifestError
from onyx.model.parsing.cluster import parse_cluster
from onyx_operator.clusters.egress import to_zookeeper
from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.resources import POLICIES, children, trials
from onyx_operator.connection import hosts_of

STORE = {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"port": 443}]}
DNS = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
ZOOKEEPER = [{"port": 2181, "protocol": "TCP"}]


def made(**policy: Any) -> Pool:
    return pool({**SPARK, "networkPolicy": policy}, {"metadata": {"name": "flights-code"}})


def egress(of: Pool, name: str) -> Any:
    """What the policy of this name says of where its pods may go."""
    (found,) = (each for each in children(of) if (each.resource, each.name) == (POLICIES, name))
    limits = "Egress" in found.body["spec"]["policyTypes"]
    assert limits == ("egress" in found.body["spec"])
    return found.body["spec"].get("egress")


def to(**labels: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": labels}}


@pytest.mark.parametrize("listed", [[], [STORE]])
def test_workers_go_to_their_own_and_to_what_is_listed(listed: list[Any]) -> None:
    of = made(egress=listed)

    among, spark, zookeeper, dns, *others = egress(of, "fleet-worker")

    assert among["to"] == [to(**of.selector)]
    assert (spark["to"], spark["ports"]) == (
        [to(**of.spark_selector("server"))],
        [{"port": 15_002, "protocol": "TCP"}],
    )
    assert zookeeper["ports"] == ZOOKEEPER
    assert (dns, others) == (DNS, listed)


def test_pods_of_spark_run_the_code_of_jobs_and_are_limited_as_workers_are() -> None:
    of = made(egress=[STORE])

    among, dns, store = egress(of, "fleet-spark")

    assert among["to"] == [to(**of.spark_selector())]
    assert (dns, store) == (DNS, STORE)


def test_without_a_limit_they_go_everywhere() -> None:
    assert egress(made(), "fleet-worker") is None
    assert egress(made(), "fleet-spark") is None


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("zk.data.svc:2181", {"kubernetes.io/metadata.name": "data"}),
        ("zk-0.zks.data.svc.cluster.local:2181", {"kubernetes.io/metadata.name": "data"}),
        ("zk:2181", {"kubernetes.io/metadata.name": "team"}),
        ("10.0.0.7:2181", "10.0.0.7/32"),
        ("[fd00::7]:2181", "fd00::7/128"),
        ("zookeeper.example.com:2181", None),
    ],
)
def test_zookeeper_is_reached_where_it_is(address: str, peer: Any) -> None:
    class At:
        zookeeper_address, namespace = f"{address}/path", "team"

    (rule,) = to_zookeeper(At())  # type: ignore[arg-type]

    assert rule["ports"] == ZOOKEEPER
    if isinstance(peer, dict):
        assert rule["to"] == [{"namespaceSelector": {"matchLabels": peer}}]
    elif peer:
        assert rule["to"] == [{"ipBlock": {"cidr": peer}}]
    else:
        assert "to" not in rule


def test_each_server_has_its_host_and_port() -> None:
    assert hosts_of("A:1, b.c.:22,d,[::1]:3/x") == [
        ("a", 1),
        ("b.c", 22),
        ("d", 2181),
        ("[::1]", 3),
    ]


def test_a_limit_without_a_policy_is_refused() -> None:
    spec = {**SPARK, "networkPolicy": {"enabled": False, "egress": []}}

    with pytest.raises(ManifestError, match=r"spec.networkPolicy.egress: limits nothing"):
        parse_cluster(cluster(spec))


def test_kubernetes_is_asked_whether_it_takes_what_is_listed() -> None:
    def asked(of: Pool) -> set[str]:
        return {each.name for each in trials(of) if each.resource == POLICIES}

    assert asked(made(egress=[STORE])) == {"fleet-spark", "fleet-worker"}
    assert asked(made()) == set()
