"""Attacked: one tenant of an operator and its ZooKeeper, by another one who may write OnyxClusters
and OnyxJobs in a namespace of its own: reads, runs in, fills, or stops what is the other's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.operator.declaring import phase
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Operator, chart_rights, cluster, job, settings
from tests.operator.test_clusters_operator import eventually, says
from tests.operator.workers import Workers
from tests.support.log.memory_log import MemoryLog
from tests.support.patience import WAIT_S

from onyx.client.client import Client
from onyx.ids import GroupId
from onyx.log.owner import TenancyTaken
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.client_log import ZooKeeperClientLog
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.settings import LogSettings, Settings, ZooKeeperSettings
from onyx_operator.connection import connection
from onyx_operator.settings import OperatorSettings

pytestmark = pytest.mark.server

TENANTS = ("blue", "red")
BOUND = 400_000
SETTINGS = settings(
    CLUSTERS_RESYNC_INTERVAL_S="0.2",
    JOBS_PROGRESS_INTERVAL_S="0.1",
    JOBS_RESYNC_INTERVAL_S="0.5",
    JOBS_RETRY_MAX_S="0.5",
    NAMESPACES=",".join(TENANTS),
)


class RealLog:
    """What pretended workers join: the log of a tenancy in ZooKeeper, as its pods see it."""

    def __init__(self, found: Settings) -> None:
        self.settings = found

    def group(self, name: GroupId) -> ZooKeeperGroupLog:
        return ZooKeeperGroupLog(self.settings, name)


class World:
    """An operator with an account, which both tenants have, and a cluster and workers for each."""

    def __init__(self, api: FakeApi, found: OperatorSettings) -> None:
        self.api, self.found = api, found

    def settings_of(self, tenant: str) -> Settings:
        """As the pods of a tenant are given them."""
        found = connection(self.cluster(tenant), self.found)
        assert isinstance(found, Settings)
        return found

    def cluster(self, namespace: str, name: str = "onyx", **spec: Any) -> dict[str, Any]:
        zookeeper = {"authSecret": "account", **spec.pop("zookeeper", {})}
        made = cluster(name, namespace, **spec)
        made["spec"]["zookeeper"] = zookeeper
        return made

    def submitted(self, tenant: str, name: str, **spec: Any) -> str:
        self.api.create(job(name, namespace=tenant, **spec))
        return str(self.job(tenant, name, phase("Running"))["status"]["jobId"])

    def job(self, tenant: str, name: str, holds: Callable[[Any], bool]) -> Any:
        return self.api.wait_for("onyxjobs", name, holds, namespace=tenant, timeout_s=WAIT_S)

    def jobs(self, tenant: str) -> dict[str, str]:
        """What stands in the log of a tenant."""
        with closing(ZooKeeperClientLog(self.settings_of(tenant))) as log:
            return {str(each.id): each.state for each in Client(log, "balanced").statuses()}


@pytest.fixture
def world(api: FakeApi, tmp_path: Path) -> Iterator[World]:
    password = tmp_path / "password"
    password.write_text("of the operator")
    with ZooKeeperServer(tmp_path / "zookeeper", heap_mib=64) as server:
        zookeeper = ZooKeeperSettings(
            server.address, auth_user="onyx", auth_password_file=str(password)
        )
        engine = Settings(zookeeper=zookeeper, log=LogSettings(tenancy_bytes_max=BOUND))
        port = server.port
        addresses = (f"localhost:{port}", f"127.0.0.1:{port}")
        found = replace(SETTINGS, engine=engine, zookeeper_addresses=addresses)
        for tenant in TENANTS:
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}})
        with Operator(api, ZooKeeperClientLog, found, rights=chart_rights(*TENANTS)):
            made = World(api, found)
            for tenant in TENANTS:
                api.create(made.cluster(tenant))
                applied = says("Reconciled", "True")
                api.wait_for("onyxclusters", "onyx", applied, namespace=tenant, timeout_s=WAIT_S)
            yield made


@pytest.fixture
def workers(world: World) -> Iterator[dict[str, Workers]]:
    blue, red = (cast(MemoryLog, RealLog(world.settings_of(each))) for each in TENANTS)
    with Workers(blue) as of_blue, Workers(red) as of_red:
        yield {"blue": of_blue, "red": of_red}


def test_neither_of_two_tenants_reads_runs_in_fills_or_stops_what_is_the_others(
    world: World, workers: dict[str, Workers]
) -> None:
    api = world.api
    precious = world.submitted("blue", "job")
    # It reads: a source that is a job of the other, by its id.
    follow = {"name": "read", "type": "input", "plugin": "job", "batchSize": 10}
    follow["options"] = {"job": precious, "task": "write"}  # type: ignore[assignment]
    thief = job("thief", namespace="red")
    thief["spec"]["catalog"][0] = follow
    api.create(thief)
    stolen = world.job("red", "thief", lambda each: each["status"].get("jobId") is not None)
    # It runs: in the tenancy of the other, by each way to the address.
    for name, address in enumerate((None, *world.found.zookeeper_addresses)):
        where = {} if address is None else {"zookeeper": {"address": address}}
        api.create(world.cluster("red", f"way-{name}", tenancyId="blue.onyx", **where))
        api.create(job(f"by-{name}", namespace="red", clusterRef=f"way-{name}"))
        refused = says("Reconciled", "False", "TenancyNotAllowed")
        api.wait_for("onyxclusters", f"way-{name}", refused, namespace="red", timeout_s=WAIT_S)
        world.job("red", f"by-{name}", phase("Pending", "ClusterNotReady"))
    astray = replace(world.settings_of("red"), tenancy_id="blue.onyx")
    with pytest.raises(TenancyTaken, match=r"tenancy blue.onyx belongs to .*/blue/onyx"):
        ZooKeeperGroupLog(astray, GroupId("astray"))
    # It fills: until it is refused itself.
    for number in range(20):
        text = random.Random(number).randbytes(60_000).hex()
        large = job(f"large-{number}", namespace="red")
        large["spec"]["catalog"][0]["options"] = {"segments": [{"n": text}]}
        api.create(large)
    eventually(lambda: any(phase("Invalid", "Refused")(each) for each in jobs_of(api, "red")))
    full = [each for each in jobs_of(api, "red") if each["status"]["phase"] == "Invalid"]
    assert {each["metadata"]["name"].partition("-")[0] for each in full} == {"large"}
    assert all("ONYX_LOG_TENANCY_BYTES_MAX" in each["status"]["message"] for each in full)
    # It stops: what has the names of the other's, and all that it has.
    api.create(job("job", namespace="red"))
    for each in jobs_of(api, "red"):
        api.delete("onyxjobs", each["metadata"]["name"], namespace="red")
    api.delete("onyxclusters", "onyx", namespace="red")

    assert world.jobs("blue") == {precious: "running"}
    of_red = world.jobs("red")
    assert precious not in of_red
    assert of_red[stolen["status"]["jobId"]] != "completed"
    later = world.submitted("blue", "later", version=2)
    for each in (precious, later):
        workers["blue"].finish(each)
    world.job("blue", "job", phase("Completed"))
    world.job("blue", "later", phase("Completed"))
    assert world.jobs("blue") == {precious: "completed", later: "completed"}


def jobs_of(api: FakeApi, namespace: str) -> list[Any]:
    return [
        each
        for each in api.list("onyxjobs")
        if each["metadata"]["namespace"] == namespace and "status" in each
    ]
