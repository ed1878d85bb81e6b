"""Attacked: the operator's ZooKeeper account, certificates and place in the network, by whoever may
write an OnyxCluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.declaring import FAST, phase
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster, job
from tests.operator.test_clusters_operator import says

from onyx.log.interface import ClientLog
from onyx.settings import Settings, TlsSettings, ZooKeeperSettings
from onyx_operator.connection import NoLog, connection
from onyx_operator.settings import OperatorSettings

OWN = ZooKeeperSettings(
    address="zk.onyx.svc:2181",
    tls=TlsSettings("ca.crt", "tls.crt", "tls.key"),
    auth_user="onyx",
    auth_password_file="/etc/onyx/password",
)
OPERATOR = OperatorSettings(
    engine=Settings(zookeeper=OWN),
    zookeeper_addresses=("a.data:2182", "b.data:2182", "c.data/teams"),
)


def found(address: str, namespace: str = "team") -> Settings | NoLog:
    spec = {
        "zookeeper": {"address": address, "authSecret": "any"},
        "tls": {"secretName": "any", "zookeeper": True},
    }
    metadata = {"namespace": namespace, "name": "blue"}
    return connection({"metadata": metadata, "spec": spec}, OPERATOR)


@pytest.mark.parametrize(
    "address",
    [
        "elsewhere:2181",
        "zk.onyx.svc:2182",
        "zk.onyx.svc:2181,elsewhere:2181",
        "elsewhere:2181,zk.onyx.svc:2181",
        "zk.onyx.svc:2181/other",
        "zk.onyx.svc:2181/..",
        "c.data:2181",
        "zk:2181",
        "zk.onyx.svc.evil.example:2181",
        "onyx:s@elsewhere:2181",
        "[::1]:2181",
        "127.0.0.1:2181",
        "127.0.0.1:22",
        ",",
    ],
)
def test_the_operator_goes_to_no_address_that_it_was_not_given(address: str) -> None:
    refused = found(address)

    assert isinstance(refused, NoLog)
    assert refused.reason == "ZooKeeperNotAllowed"
    assert "ONYX_OPERATOR_ZOOKEEPER_ADDRESSES" in refused.message


@pytest.mark.parametrize(
    ("address", "namespace", "dialled"),
    [
        ("zk.onyx.svc:2181", "team", "zk.onyx.svc:2181"),
        ("ZK.onyx.svc.cluster.local.", "team", "zk.onyx.svc:2181"),
        ("zk:2181", "onyx", "zk.onyx.svc:2181"),
        ("b.data:2182,a.data:2182", "team", "b.data:2182,a.data:2182"),
        ("c.data:2181/teams/", "team", "c.data/teams"),
    ],
)
def test_it_dials_what_it_was_given_however_a_cluster_writes_that(
    address: str, namespace: str, dialled: str
) -> None:
    settings = found(address, namespace)

    assert isinstance(settings, Settings)
    assert settings.zookeeper.address == dialled
    assert settings.zookeeper.auth_user == "onyx"


def test_a_cluster_at_another_address_says_so_and_nothing_is_dialled(api: FakeApi) -> None:
    dialled: list[str] = []
    logs = Logs()

    def connect(settings: Settings) -> ClientLog:
        dialled.append(settings.zookeeper.address)
        return logs.connect(settings)

    away: dict[str, Any] = {"zookeeper": {"address": "elsewhere:2181", "authSecret": "any"}}
    with Operator(api, connect, FAST):
        api.create(cluster("away", **away))
        api.create(job(clusterRef="away"))
        api.wait_for("onyxclusters", "away", says("Reconciled", "False", "ZooKeeperNotAllowed"))
        api.wait_for("onyxjobs", "job", phase("Pending", "ClusterNotReady"))
        api.create(cluster())
        api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))
        api.delete("onyxclusters", "away")
        api.delete("onyxjobs", "job")
        api.create(job("right"))
        api.wait_for("onyxjobs", "right", lambda each: "jobId" in each.get("status", {}))
    assert api.get("statefulsets", "away-worker") is None
    assert set(dialled) == {"zookeeper:2181"}
