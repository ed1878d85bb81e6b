"""Two tenants of one operator and one ZooKeeper, with a namespace, an OnyxCluster, a job and an
account each: both jobs complete, and neither names or reaches what is the other's."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from msgspec.structs import replace
from tests.e2e.kube import CommandError, Kube, until
from tests.e2e.release import Release, conditions
from tests.e2e.test_e2e_installation import may
from tests.e2e.test_e2e_namespaces import credentials, grant, no_cluster_roles, team
from tests.e2e.test_e2e_processes import FUNCTIONS, job, operator, rows
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.support.servers.ports import free_port

from onyx.log.server.process import ZooKeeperServer
from onyx.settings import ZooKeeperSettings

__all__ = ["no_cluster_roles", "team"]
SEGMENTS = 200
DRAWN_BY_OTHERS = {"zookeeper": {"authSecret": "given"}}


def cluster(name: str = "onyx", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxCluster",
        "metadata": metadata,
        "spec": spec,
    }


def says(kube: Kube, name: str, status: str, reason: str = "") -> bool:
    found = conditions(kube.get("oc", name), "Reconciled")
    return any(each["status"] == status and reason in ("", each["reason"]) for each in found)


def account(kube: Kube) -> tuple[str, str]:
    """User and password of the tenancy of a namespace."""
    selector = "onyx.dev/cluster=onyx"
    (secret,) = until(lambda: kube.list("secrets", selector), "there is an account")
    assert secret["type"] == "onyx.dev/zookeeper-account"
    assert [each["kind"] for each in secret["metadata"]["ownerReferences"]] == ["OnyxCluster"]
    user, password = (
        base64.b64decode(secret["data"][key]).decode() for key in ("user", "password")
    )
    return user, password


@contextlib.contextmanager
def workers(
    address: str, namespace: str, shown: tuple[str, str], folder: Path
) -> Iterator[Cluster]:
    """Workers of a tenant, as its pods would be: with the account of its tenancy."""
    user, password = shown
    file = folder / "password"
    file.write_text(password)
    zookeeper = ZooKeeperSettings(address, auth_user=user, auth_password_file=str(file))
    made = Cluster(zookeeper, folder, FUNCTIONS)
    made.settings = replace(made.settings, tenancy_id=f"{namespace}.onyx")
    with made:
        made.start_workers(1, peers=3)
        yield made


def is_open(address: str, shown: tuple[str, str], node: str) -> bool:
    client = KazooClient(address, auth_data=[("digest", ":".join(shown))])
    client.start(WAIT_S)
    try:
        return bool(client.get_children(node))
    except NoAuthError:
        return False
    finally:
        client.stop()
        client.close()


def test_tenants_have_an_operator_in_common_and_nothing_else(
    kube: Kube, team: Kube, tmp_path: Path
) -> None:
    tenants = {each.namespace: each for each in (kube, team)}
    (tmp_path / "password").write_text("of the operator alone")
    grant(kube, {"watchNamespaces": [*tenants], **DRAWN_BY_OTHERS})
    who = credentials(kube, tmp_path)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer(tmp_path / "zookeeper", port=free_port()))
        variables = {
            "KUBECONFIG": str(who),
            "ONYX_OPERATOR_NAMESPACES": ",".join(tenants),
            "ONYX_ZOOKEEPER_ADDRESS": server.address,
            "ONYX_ZOOKEEPER_AUTH_USER": "onyx",
            "ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE": str(tmp_path / "password"),
        }
        stack.enter_context(operator(kube, tmp_path / "operator.log", **variables))
        accounts = {}
        for name, tenant in tenants.items():
            tenant.apply(cluster(replicas=0, modules=["squares"]))
            until(lambda tenant=tenant: says(tenant, "onyx", "True"), "its objects are there")
            accounts[name] = account(tenant)
        for name, tenant in tenants.items():
            folder = tmp_path / name
            folder.mkdir()
            stack.enter_context(workers(server.address, name, accounts[name], folder))
            tenant.apply(job("squares", folder / "out", SEGMENTS, per_second=SEGMENTS))
        for name, tenant in tenants.items():
            until(lambda tenant=tenant: tenant.phase("squares") == "Completed", "it completes")
            assert len(set(rows(tmp_path / name / "out"))) == SEGMENTS
        for own, other in permutations(tenants):
            tenants[own].apply(cluster("thief", replicas=0, tenancyId=f"{other}.onyx"))
            refused = lambda own=own: says(tenants[own], "thief", "False", "TenancyNotAllowed")  # noqa: E731
            until(refused, "the tenancy of another namespace is refused")
            assert is_open(server.address, accounts[own], f"/onyx/{own}.onyx")
            assert not is_open(server.address, accounts[own], f"/onyx/{other}.onyx")
            assert not any(
                may(tenants[own], who, verb, "secrets") for verb in ("get", "list", "patch")
            )
        for tenant in tenants.values():
            tenant.kubectl("delete", "oj,oc", "--all", "--timeout=60s")


@pytest.fixture
def shared(nodes: None, kube: Kube, team: Kube) -> Iterator[Release]:
    """An operator without a cluster, which looks after another namespace."""
    release = Release(kube)
    values = ("tls.enabled=false", f"watchNamespaces={{{kube.namespace},{team.namespace}}}")
    try:
        release.install_operator(*(part for each in values for part in ("--set", each)))
        yield release
    finally:
        for each in (team, kube):
            with contextlib.suppress(CommandError):
                each.kubectl("delete", "oj,oc", "--all", "--timeout=60s")
        release.remove()


def test_pods_of_tenants_have_the_account_of_their_own_tenancy(shared: Release, team: Kube) -> None:
    tenants = {each.namespace: each for each in (shared.kube, team)}
    numbers = {"segments": [{"n": number} for number in range(10)]}
    catalog = [
        {"name": "read", "type": "input", "plugin": "sequence", "options": numbers},
        {"name": "write", "type": "output", "plugin": "stdout"},
    ]
    declared = {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "numbers"},
        "spec": {"workflow": [["read", "write"]], "catalog": catalog},
    }
    for tenant in tenants.values():
        resources = {"requests": {"cpu": "20m", "memory": "256Mi"}}
        tenant.apply(cluster(replicas=1, peersPerWorker=2, resources=resources))
        tenant.apply(declared)
    for tenant in tenants.values():
        until(lambda tenant=tenant: tenant.phase("numbers") == "Completed", "it completes")
    for own, other in permutations(tenants):
        nodes = [f"/onyx/{each}.onyx" for each in (own, other)]
        assert tenants[own].tool("onyx-worker-0", "open_nodes", *nodes).split() == [
            "open",
            "closed",
        ]
        tenants[own].apply(cluster("thief", replicas=1, tenancyId=f"{other}.onyx"))
        refused = lambda own=own: says(tenants[own], "thief", "False", "TenancyNotAllowed")  # noqa: E731
        until(refused, "the tenancy of another namespace is refused")
