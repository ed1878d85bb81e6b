"""What the operator draws, with the rights of the chart against a real API server: Secrets that
outlive it, a webhook that is trusted, and nothing else that it may read. It needs no node."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.cluster.layout import HOST_IP, NODE_IP
from tests.e2e.kube import CommandError, Kube, run, tool, until
from tests.e2e.test_e2e_namespaces import credentials
from tests.e2e.test_e2e_processes import job, operator
from tests.operator.harness import installation
from tests.support.generated.chart import objects
from tests.support.servers.ports import free_port

ROLES = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
DRAWN = ("onyx-authority", "onyx-tls", "onyx-zookeeper-account")
HOOKS = "ValidatingWebhookConfiguration"
SERVICE = "webhook"


class Webhook(NamedTuple):
    """Where the operator of this machine answers the API server."""

    name: str
    host: str
    port: int
    service: str = ""
    """A Service that leads there; else the name does."""


@pytest.fixture
def installed(kube: Kube) -> Iterator[Webhook]:
    """What Helm makes of roles and webhook."""
    webhook = webhook_for(kube)
    outside = name_outside(kube)
    for each in objects({"rbac": {"aggregate": False}}):
        if each["kind"] in (*ROLES, HOOKS) and "test" not in each["metadata"]["name"]:
            kube.apply(moved(each, kube, webhook))
    yield webhook
    with contextlib.suppress(CommandError):
        kube.kubectl("delete", "clusterrole,clusterrolebinding", outside, "--ignore-not-found")
    kube.kubectl("delete", HOOKS, outside, "--ignore-not-found")


def webhook_for(kube: Kube) -> Webhook:
    """One that this API server reaches: on its loopback interface, or by the way that leads out of
    the namespace of `make cluster`, to which its proxy can take a Service."""
    config = json.loads(run([tool("kubectl"), "config", "view", "--output", "json"]))
    server, port = urlsplit(config["clusters"][0]["cluster"]["server"]).hostname, free_port()
    if server == "127.0.0.1":
        return Webhook("localhost", server, port)
    if server != NODE_IP:
        pytest.skip("this API server does not reach processes of this machine")
    service = {"ports": [{"port": 443}]}
    labels = {"kubernetes.io/service-name": SERVICE}
    for each in (
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": service},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": SERVICE, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [HOST_IP]}],
            "ports": [{"port": port}],
        },
    ):
        kube.apply(each)
    return Webhook(f"{SERVICE}.{kube.namespace}.svc", HOST_IP, port, SERVICE)


def name_outside(kube: Kube) -> str:
    """Of what is in no namespace: no other installation has it."""
    return f"installation-of-{kube.namespace}"


def moved(body: Any, kube: Kube, webhook: Webhook) -> Any:
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
        hook["clientConfig"] |= (
            {"service": {"name": webhook.service, "namespace": kube.namespace, "path": path}}
            if webhook.service
            else {"url": f"https://{webhook.name}:{webhook.port}{path}"}
        )
    return body


def variables(kube: Kube, webhook: Webhook, folder: Path) -> dict[str, str]:
    chosen = installation(folder) | {
        "INSTALLATION_NAMESPACE": kube.namespace,
        "LEASE_NAMESPACE": kube.namespace,
        "INSTALLATION_WEBHOOK_NAME": webhook.name,
        "INSTALLATION_WEBHOOK_CONFIGURATION": name_outside(kube),
        "INSTALLATION_INTERVAL_S": "1",
        "WEBHOOK_CERT_FILE": str(folder / "onyx/webhook/tls.crt"),
        "WEBHOOK_KEY_FILE": str(folder / "onyx/webhook/tls.key"),
        "WEBHOOK_HOST": webhook.host,
        "WEBHOOK_PORT": str(webhook.port),
    }
    return {f"ONYX_OPERATOR_{name}": value for name, value in chosen.items()}


def drawn(kube: Kube) -> dict[str, Any]:
    return {name: kube.get("secret", name)["data"] for name in DRAWN}


def refusal(kube: Kube, body: Any) -> str:
    with pytest.raises(CommandError) as caught:
        kube.apply(body)
    return str(caught.value)


def test_what_is_drawn_is_trusted_kept_and_all_that_is_read(
    kube: Kube, installed: Webhook, tmp_path: Path
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
