"""Attacked: one tenant of an operator and its ZooKeeper, by another one who may write OnyxClusters
and OnyxJobs in a namespace of its own: reads, runs in, fills, or stops what is the other's."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE
from msgspec.structs import replace
from tests.operator.declaring import phase
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Operator, chart_rights, cluster, job, settings
from tests.operator.test_clusters_operator import eventually, says
from tests.operator.workers import Workers
from tests.support.log.markers import marker
from tests.support.log.memory_log import MemoryLog
from tests.support.log.strangers import stranger
from tests.support.patience import WAIT_S

from onyx.client.client import Client
from onyx.errors import UserError
from onyx.ids import NO_POSITION, GroupId
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.log.zookeeper.log import ZooKeeperClientLog
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
    """An operator with an account, and a cluster, an account and workers for each tenant."""

    def __init__(self, api: FakeApi, found: OperatorSettings, folder: Path) -> None:
        self.api, self.found, self.folder = api, found, folder

    def of_operator(self, tenant: str) -> Settings:
        """How the operator reaches the log of a tenant."""
        found = connection(self.cluster(tenant), self.found)
        assert isinstance(found, Settings)
        return found

    def secret(self, tenant: str) -> Any:
        """The one Secret in the namespace of a tenant."""
        secrets = self.api.list("secrets")
        (found,) = (each for each in secrets if each["metadata"]["namespace"] == tenant)
        return found

    def account(self, tenant: str) -> tuple[str, str]:
        """User and password, as they stand there."""
        data = self.secret(tenant)["data"]
        user, password = (base64.b64decode(data[key]).decode() for key in ("user", "password"))
        return user, password

    def settings_of(self, tenant: str) -> Settings:
        """As the pods of a tenant are given them."""
        found, (user, password) = self.of_operator(tenant), self.account(tenant)
        file = self.folder / f"password-of-{tenant}"
        file.write_text(password)
        own = replace(
            found.zookeeper, auth_user=user, auth_password_file=str(file), auth_per_tenancy=False
        )
        return replace(found, zookeeper=own)

    def cluster(self, namespace: str, name: str = "onyx", **spec: Any) -> dict[str, Any]:
        zookeeper = spec.pop("zookeeper", {})
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
        with closing(ZooKeeperClientLog(self.of_operator(tenant))) as log:
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
            made = World(api, found, tmp_path)
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
    with pytest.raises(UserError, match="refuses access"):
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


ATTACKS: dict[str, Callable[[KazooClient, str], object]] = {
    "read": lambda client, node: client.get(node),
    "list": lambda client, node: client.get_children(node),
    "delete": lambda client, node: client.delete(node),
    "write": lambda client, node: client.set(node, b"junk"),
    "add": lambda client, node: client.create(f"{node}/junk", b"junk"),
    "open": lambda client, node: client.set_acls(node, OPEN_ACL_UNSAFE),
    "see whose it is": lambda client, node: client.get_acls(node),
}


def test_the_account_of_a_tenant_opens_its_own_tree_alone_and_that_of_the_operator_all(
    world: World,
) -> None:
    operators = ("onyx", "of the operator")
    accounts = {tenant: world.account(tenant) for tenant in TENANTS}
    with stranger(world.found.engine.zookeeper.address, operators, *accounts.values()) as everybody:
        nodes = {each: sorted(tree(everybody, f"/onyx/{each}.onyx")) for each in TENANTS}
    for own, other in permutations(TENANTS):
        with stranger(world.found.engine.zookeeper.address, accounts[own]) as client:
            assert sorted(tree(client, f"/onyx/{own}.onyx")) == nodes[own]
            client.set(f"/onyx/{own}.onyx/log", b"")
            for name, attack in ATTACKS.items():
                for node in nodes[other]:
                    assert is_denied(attack, client, node), f"{own} may {name} {node}"
            assert is_denied(ATTACKS["add"], client, "/onyx")
    assert {"log", "chunks", "origin"} <= {node.rpartition("/")[2] for node in nodes["blue"]}
    for tenant in TENANTS:
        for found in world.of_operator(tenant), world.settings_of(tenant):
            with closing(ZooKeeperClientLog(found)) as log:
                log.append(marker(tenant))
                assert log.read(NO_POSITION)
                assert log.usage().bytes, "the operator lets the tenant know"


def is_denied(attack: Callable[[KazooClient, str], object], client: KazooClient, node: str) -> bool:
    try:
        attack(client, node)
    except NoAuthError:
        return True
    return False


def tree(client: KazooClient, top: str) -> Iterator[str]:
    yield top
    for child in client.get_children(top):
        yield from tree(client, f"{top}/{child}")


def jobs_of(api: FakeApi, namespace: str) -> list[Any]:
    return [
        each
        for each in api.list("onyxjobs")
        if each["metadata"]["namespace"] == namespace and "status" in each
    ]
