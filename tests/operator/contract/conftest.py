"""The API servers that keep the contract: the fake, and a real one if there is one.

`ONYX_TEST_KUBECONFIG=FILE pytest tests/operator/contract` runs the same tests against the server
that this kubeconfig names, too. It needs the right to make namespaces and CRDs; what it makes is
named `contract-...` and removed again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import config
from kubernetes.client import Configuration
from tests.operator.contract.client import Client, eventually
from tests.operator.fake_api.server import FakeApi

REAL = os.environ.get("ONYX_TEST_KUBECONFIG", "")
SERVERS = ["fake", *(["real"] if REAL else [])]
CRDS = [
    Path(__file__).parent / "widgets.yaml",
    *(Path(__file__).parents[3] / "crds").glob("*.yaml"),
]
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="session", params=SERVERS)
def endpoint(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A server that serves our kinds."""
    configuration = Configuration()
    if request.param == "real":
        config.load_kube_config(REAL, client_configuration=configuration)
        client = Client(configuration, forget=lambda: None)
        for crd in CRDS:
            _install(client, crd)
        yield client
        return
    with FakeApi(*CRDS) as api:
        configuration.host = api.url
        yield Client(configuration, forget=api.store.compact)


def _install(client: Client, file: Path) -> None:
    crd = yaml.safe_load(file.read_text())
    name = crd["metadata"]["name"]
    query = {"fieldManager": "contract", "force": "true"}
    answer = client.call("PATCH", f"{_CRDS}/{name}", crd, query, "application/apply-patch+yaml")
    assert answer.code in (200, 201), answer
    version = crd["spec"]["versions"][0]["name"]
    path = f"/apis/{crd['spec']['group']}/{version}/{crd['spec']['names']['plural']}"
    assert eventually(lambda: client.call("GET", path).code == 200)


@pytest.fixture
def server(endpoint: Client) -> Iterator[Client]:
    """The same server, with a namespace of this test's own."""
    name = f"contract-{uuid.uuid4().hex[:8]}"
    assert endpoint.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    endpoint.namespace = name
    yield endpoint
    endpoint.call("DELETE", f"/api/v1/namespaces/{name}")
