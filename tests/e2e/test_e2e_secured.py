"""What production turns on: three ZooKeeper servers with an account, TLS on every wire, Secrets of
one's own, definitions that are upgraded. The chart, the images and Kubernetes have to agree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trustme
from tests.e2e.kube import Kube
from tests.e2e.release import Release

VALUES = (
    *("--set", "zookeeper.replicas=3"),
    *("--set", "zookeeper.authSecret=account"),
    *("--set", "tls.existingSecret=certificates"),
    *("--set", "crds.upgrade=true"),
)


def secret(kube: Kube, name: str, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    kube.apply({**body, "stringData": data})


def certificate(namespace: str) -> dict[str, str]:
    """As cert-manager would make it from the chart's Certificate."""
    authority = trustme.CA()
    issued = authority.issue_cert(
        f"onyx-worker.{namespace}.svc",
        f"onyx-zookeeper.{namespace}.svc",
        f"*.onyx-zookeeper-servers.{namespace}.svc",
    )
    return {
        "ca.crt": authority.cert_pem.bytes().decode(),
        "tls.crt": b"".join(each.bytes() for each in issued.cert_chain_pems).decode(),
        "tls.key": issued.private_key_pem.bytes().decode(),
    }


@pytest.fixture
def secured(nodes: None, kube: Kube) -> Iterator[Release]:
    secret(kube, "certificates", **certificate(kube.namespace))
    secret(kube, "account", user="onyx", password="none-of-your-business")
    release = Release(kube)
    try:
        release.install(*VALUES)
        yield release
    finally:
        release.remove()


def test_jobs_run_while_a_zookeeper_server_is_lost(secured: Release) -> None:
    squares = secured.start_squares("secured", segments=4_000, per_second=200)
    squares.await_some()

    secured.kube.delete_at_once("pod", secured.zookeeper())
    secured.kube.delete_at_once("pod", secured.worker(1))

    squares.assert_unfinished()
    secured.await_completed("secured")
    squares.assert_whole()


def test_an_upgrade_changes_the_definitions_too_and_the_test_passes(secured: Release) -> None:
    patch = '[{"op": "remove", "path": "/spec/names/categories"}]'
    definition = "crd/onyxjobs.onyx.dev"
    secured.kube.kubectl("patch", definition, "--type=json", "--patch", patch)

    secured.upgrade(*VALUES)

    secured.kube.kubectl("get", "onyx", "--output", "name")
    found = secured.kube.kubectl("get", definition, "--output", "jsonpath={.spec.names.categories}")
    assert found == '["onyx"]'
    assert "Phase:          Succeeded" in secured.kube.helm("test", "onyx", "--timeout", "4m")
