"""Attacked: the jobs and data of one namespace, by an OnyxCluster of another one that asks for
their tenancy."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.declaring import phase
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, chart_rights, cluster, job, settings
from tests.operator.test_clusters_operator import eventually, message, says
from tests.support.log.memory_log import MemoryLog

from onyx.log.tenancy import TenancyTaken, check_owner
from onyx.settings import Settings, ZooKeeperSettings
from onyx_operator.connection import NoLog, connection
from onyx_operator.settings import OperatorSettings

ADDRESSES = ("localhost:2181", "127.0.0.1:2181", "zk.data.svc:2181", "zk:2181", "10.0.0.7:2181")
OPERATOR = OperatorSettings(
    engine=Settings(zookeeper=ZooKeeperSettings(address="own:2181")),
    zookeeper_addresses=ADDRESSES,
    tenancies=("blue/shared", "red.x/own"),
)


def found(namespace: str, address: str | None = None, **spec: Any) -> Settings | NoLog:
    named = {} if address is None else {"zookeeper": {"address": address}}
    metadata = {"namespace": namespace, "name": "onyx"}
    return connection({"metadata": metadata, "spec": {**named, **spec}}, OPERATOR)


@pytest.mark.parametrize("address", [None, *ADDRESSES, "ZK.data", "LOCALHOST"])
@pytest.mark.parametrize(
    "tenancy",
    ["blue.onyx", "blue", "shared", "red", "redblue.x", "red-x.onyx", "Red.x", "own", "reds.onyx"],
)
def test_a_tenancy_of_another_namespace_is_refused_however_its_address_is_written(
    tenancy: str, address: str | None
) -> None:
    refused = found("red", address, tenancyId=tenancy)

    assert isinstance(refused, NoLog)
    assert refused.reason == "TenancyNotAllowed"
    assert f"red/{tenancy}" in refused.message


@pytest.mark.parametrize(
    ("namespace", "tenancy"), [("red", "red.other"), ("red", "red.a.b"), ("blue", "shared")]
)
def test_ones_own_and_those_that_are_listed_are_had(namespace: str, tenancy: str) -> None:
    had = found(namespace, tenancyId=tenancy)

    assert isinstance(had, Settings)
    assert had.tenancy_id == tenancy


def test_another_spelling_of_the_address_does_not_lead_into_the_log_of_another_cluster(
    api: FakeApi, logs: Logs
) -> None:
    """Both may have the tenancy, by what the operator lists; one is of another namespace."""
    chosen = settings(
        CLUSTERS_RESYNC_INTERVAL_S="0.2",
        JOBS_RESYNC_INTERVAL_S="0.5",
        NAMESPACES="default,thieves",
        ZOOKEEPER_ADDRESSES="zookeeper:2181,10.0.0.7:2181,127.0.0.1:2181",
        TENANCIES="default/shared,thieves/shared",
    )
    rights = chart_rights("default", "thieves")
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "thieves"}})
    taken = says("Reconciled", "False", "TenancyTaken")
    with Operator(api, logs.connect, chosen, rights=rights):
        api.create(cluster(tenancyId="shared"))
        api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))
        eventually(lambda: logs.log("shared")._store.owner.endswith("/default/onyx"))
        api.create(job())
        eventually(lambda: logs.commands("submit-job", "shared"))
        for name, namespace, address in (
            ("second", "default", "10.0.0.7:2181"),
            ("onyx", "thieves", "127.0.0.1:2181"),
        ):
            elsewhere = {"zookeeper": {"address": address}}
            api.create(cluster(name, namespace, tenancyId="shared", **elsewhere))
            refused = api.wait_for("onyxclusters", name, taken, namespace=namespace)
            assert "/default/onyx" in message(refused, "Reconciled")
            api.create(job(f"of-{name}", namespace=namespace, clusterRef=name))
            waits = phase("Pending", "TenancyTaken")
            api.wait_for("onyxjobs", f"of-{name}", waits, namespace=namespace)
        assert len(logs.commands("submit-job", "shared")) == 1
        api.delete("onyxclusters", "onyx")

        api.wait_for("onyxclusters", "second", says("Reconciled", "True"))
        eventually(lambda: logs.log("shared")._store.owner.endswith("/default/second"))
        api.wait_for("onyxclusters", "onyx", taken, namespace="thieves")
        api.wait_for("onyxjobs", "of-onyx", waits, namespace="thieves")


def test_a_worker_of_another_cluster_does_not_open_the_log() -> None:
    owners = [found("blue", address, tenancyId="shared") for address in ADDRESSES]
    mine, log = found("red", tenancyId="red.onyx"), MemoryLog().client()

    assert isinstance(mine, Settings)
    assert {each.tenancy_owner for each in owners if isinstance(each, Settings)} == {
        "OnyxCluster//blue/onyx"
    }
    check_owner(log, "shared", "OnyxCluster//blue/onyx")
    check_owner(log, "shared", "OnyxCluster//blue/onyx")
    check_owner(log, "shared", "")
    with pytest.raises(TenancyTaken, match="tenancy shared belongs to OnyxCluster//blue/onyx"):
        check_owner(log, "shared", mine.tenancy_owner)


def test_neither_asking_first_nor_waiting_leads_to_the_jobs_of_others(
    api: FakeApi, logs: Logs
) -> None:
    """The thief asks before the owner is there, while it is, and when it is gone."""
    chosen = settings(
        JOBS_PROGRESS_INTERVAL_S="0.05", JOBS_RESYNC_INTERVAL_S="0.5", NAMESPACES="default,thieves"
    )
    rights = chart_rights("default", "thieves")
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "thieves"}})
    with Operator(api, logs.connect, chosen, rights=rights):
        stolen = {"tenancyId": "default.onyx"}
        api.create(cluster("onyx", "thieves", **stolen))
        refused = says("Reconciled", "False", "TenancyNotAllowed")
        api.wait_for("onyxclusters", "onyx", refused, namespace="thieves")
        api.create(job("theirs", namespace="thieves"))
        waits = phase("Pending", "ClusterNotReady")
        api.wait_for("onyxjobs", "theirs", waits, namespace="thieves")
        api.create(cluster())
        api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))
        api.create(job())
        eventually(lambda: logs.commands("submit-job"))
        api.delete("onyxclusters", "onyx")
        api.patch("onyxclusters", "onyx", {"metadata": {"labels": {"a": "b"}}}, namespace="thieves")
        api.wait_for("onyxclusters", "onyx", refused, namespace="thieves")
        api.wait_for("onyxjobs", "theirs", waits, namespace="thieves")

    assert api.get("statefulsets", "onyx-worker", namespace="thieves") is None
    assert len(logs.commands("submit-job")) == 1
