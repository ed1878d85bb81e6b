"""With the webhook on, mistakes are refused when they are applied; its certificate is renewed
without a restart."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import trustme
from tests.e2e.kube import CommandError, Kube, until
from tests.e2e.release import Release, Squares

SECRET = "webhook"


class Certificate:
    """The webhook's Secret, as cert-manager would make and renew it, and the authority's PEM."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.bundle = ""

    def issue(self) -> None:
        """A new certificate, by a new authority."""
        authority = trustme.CA()
        issued = authority.issue_cert(f"onyx-operator-webhook.{self._kube.namespace}.svc")
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        data = {"tls.crt": chain.decode(), "tls.key": issued.private_key_pem.bytes().decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
        self._kube.apply({**secret, "stringData": data})
        self.bundle = base64.b64encode(authority.cert_pem.bytes()).decode()


@pytest.fixture
def certificate(nodes: None, kube: Kube) -> Certificate:
    made = Certificate(kube)
    made.issue()
    return made


@pytest.fixture
def guarded(certificate: Certificate, kube: Kube) -> Iterator[Release]:
    """The chart with the webhook on."""
    release = Release(kube)
    try:
        release.install(
            *("--set", f"webhook.existingSecret={SECRET}"),
            *("--set", f"webhook.caBundle={certificate.bundle}"),
        )
        yield release
    finally:
        release.remove()


def refusal(kube: Kube, body: dict[str, Any]) -> str:
    """What is printed when this is applied."""
    with pytest.raises(CommandError) as caught:
        kube.apply(body)
    return str(caught.value)


def test_mistakes_are_refused_at_once_before_and_after_a_renewal(
    guarded: Release, certificate: Certificate
) -> None:
    kube = guarded.kube
    good = Squares(guarded, "squares", segments=100).manifest(per_second=1_000)
    edges = [["numbers", "nowhere"], ["square", "write"]]
    bad = {**good, "spec": {**good["spec"], "workflow": edges}}

    reported = refusal(kube, bad)
    assert 'spec.workflow[0][1]: "nowhere" is not in the catalog' in reported
    assert "has no edge into the function square" in reported
    env = [{"name": "ONYX_MODULES", "value": "os"}]
    pool = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxCluster", "metadata": {"name": "more"}}
    assert "use spec.modules" in refusal(kube, {**pool, "spec": {"env": env}})
    typo = {"podTemplate": {"spec": {"nodeSelektor": {"disk": "ssd"}}}}
    reported = refusal(kube, {**pool, "spec": {**typo, "image": "onyx-worker:1"}})
    assert "spec.podTemplate.spec.nodeSelektor: " in reported
    assert "did you mean nodeSelector?" in reported
    typo = {"podTemplate": {"spec": {"affinity": {"nodeAffinitty": {}}}}}
    reported = refusal(kube, {**pool, "spec": {**typo, "image": "onyx-worker:1"}})
    assert "spec.podTemplate.spec.affinity.nodeAffinitty: field not declared in schema" in reported
    kube.apply(good)
    guarded.await_completed("squares")

    certificate.issue()
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        (found,) = [
            each
            for each in json.loads(kube.kubectl("get", kind, "--output", "json"))["items"]
            if each["metadata"]["name"].startswith(kube.namespace)
        ]
        trust = [
            {
                "op": "replace",
                "path": f"/webhooks/{n}/clientConfig/caBundle",
                "value": certificate.bundle,
            }
            for n in range(len(found["webhooks"]))
        ]
        name = f"{kind}/{found['metadata']['name']}"
        kube.kubectl("patch", name, "--type=json", "--patch", json.dumps(trust))
    until(lambda: "nowhere" in refusal(kube, bad), "the renewed certificate is shown")

    pods = kube.list("pods", "app.kubernetes.io/component=operator")
    restarts = [each["restartCount"] for pod in pods for each in pod["status"]["containerStatuses"]]
    assert restarts == [0, 0]
