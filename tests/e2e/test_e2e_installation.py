"""What the operator draws, with the rights of the chart against a real API server: Secrets that
outlive it, a webhook that is trusted, and nothing else that it may read. It needs no node."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kube import CommandError, Kube, run, tool, until
from tests.e2e.test_e2e_namespaces import credentials
from tests.e2e.test_e2e_processes import job, operator
from tests.operator.harness import installation
from tests.support.generated.chart import objects
from tests.support.servers.ports import free_port

ROLES = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
DRAWN = ("onyx-authority", "onyx-tls", "onyx-zookeeper-account")
HOOKS = "ValidatingWebhookConfiguration"


@pytest.fixture
def installed(kube: Kube) -> Iterator[int]:
    """What Helm makes of roles and webhook; the port where the API server asks the webhook."""
    config = json.loads(run([tool("kubectl"), "config", "view", "--output", "json"]))
    if "//127.0.0.1:" not in config["clusters"][0]["cluster"]["server"]:
        pytest.skip("this API server does not reach processes of this machine")
    port, outside = free_port(), name_outside(kube)
    for each in objects({"rbac": {"aggregate": False}}):
        if each["kind"] in (*ROLES, HOOKS) and "test" not in each["metadata"]["name"]:
            kube.apply(moved(each, kube, port))
    yield port
    with contextlib.suppress(CommandError):
        kube.kubectl("delete", "clusterrole,clusterrolebinding", outside, "--ignore-not-found")
    kube.kubectl("delete", HOOKS, outside, "--ignore-not-found")


def name_outside(kube: Kube) -> str:
    """Of what is in no namespace: no other installation has it."""
    return f"installation-of-{kube.namespace}"


def moved(body: Any, kube: Kube, port: int) -> Any:
    """An object of the chart, for this namespace and a webhook on this machine."""
    for subject in body.get("subjects", ()):
        subject["namespace"] = kube.namespace
    if "namespace" in body["metadata"]:
        body["metadata"]["namespace"] = kube.namespace
        return body
    body["metadata"]["name"] = name_outside(kube)
    if "roleRef" in body:
        body["roleRef"]["name"] = name_outside(kube)
    for rule in body.get("rules", ()):
        rule["resourceNames"] = [name_outside(kube)]
    for hook in body.get("webhooks", ()):
        labels = {"kubernetes.io/metadata.name": kube.namespace}
        hook["namespaceSelector"] = {"matchLabels": labels}
        path = hook["clientConfig"].pop("service")["path"]
        hook["clientConfig"]["url"] = f"https://localhost:{port}{path}"
    return body


def variables(kube: Kube, port: int, folder: Path) -> dict[str, str]:
    chosen = installation(folder) | {
        "INSTALLATION_NAMESPACE": kube.namespace,
        "LEASE_NAMESPACE": kube.namespace,
        "INSTALLATION_WEBHOOK_NAME": "localhost",
        "INSTALLATION_WEBHOOK_CONFIGURATION": name_outside(kube),
        "INSTALLATION_INTERVAL_S": "1",
        "WEBHOOK_CERT_FILE": str(folder / "onyx/webhook/tls.crt"),
        "WEBHOOK_KEY_FILE": str(folder / "onyx/webhook/tls.key"),
        "WEBHOOK_HOST": "127.0.0.1",
        "WEBHOOK_PORT": str(port),
    }
    return {f"ONYX_OPERATOR_{name}": value for name, value in chosen.items()}


def drawn(kube: Kube) -> dict[str, Any]:
    return {name: kube.get("secret", name)["data"] for name in DRAWN}


def refusal(kube: Kube, body: Any) -> str:
    with pytest.raises(CommandError) as caught:
        kube.apply(body)
    return str(caught.value)


def test_what_is_drawn_is_trusted_kept_and_all_that_is_read(
    kube: Kube, installed: int, tmp_path: Path
) -> None:
    wrong: Any = job("wrong", tmp_path / "out", segments=1, per_second=1)
    wrong["spec"]["workflow"] = [["numbers", "nowhere"]]
    reaching = {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxCluster",
        "metadata": {"name": "reaching"},
        "spec": {"podTemplate": {"spec": {"hostNetwork": True}}},
    }
    who = credentials(kube, tmp_path)
    settings = variables(kube, installed, tmp_path) | {"KUBECONFIG": str(who)}

    with operator(kube, tmp_path / "operator.log", **settings):
        until(lambda: "nowhere" in refusal(kube, wrong), "the webhook is trusted")
        assert "needs the right hostNetwork" in refusal(kube, reaching)
        before = drawn(kube)
    with operator(kube, tmp_path / "operator.log", **settings):
        until(lambda: "nowhere" in refusal(kube, wrong), "another operator is trusted")
        assert drawn(kube) == before
        kube.kubectl("delete", "secret", "onyx-tls")
        until(lambda: drawn(kube), "what is deleted is made again")
        assert drawn(kube)["onyx-zookeeper-account"] == before["onyx-zookeeper-account"]

    assert may(kube, who, "get", "secret/onyx-tls")
    for what in ("secrets", "secret/of-others"):
        assert not any(may(kube, who, verb, what) for verb in ("get", "list", "patch", "delete"))
    assert not may(kube, who, "patch", "secret/onyx-zookeeper-account")


def may(kube: Kube, who: Path, verb: str, what: str) -> bool:
    try:
        kube.kubectl("--kubeconfig", str(who), "auth", "can-i", verb, what)
    except CommandError:
        return False
    return True
