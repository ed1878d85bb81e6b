"""The API servers that keep the contract: the fake, and a real one if there is one.

`ONYX_TEST_KUBECONFIG=FILE pytest tests/operator/contract` runs the same tests against the server
that this kubeconfig names, too. It needs the right to make namespaces and CRDs; what it makes is
named `contract-...` and removed again.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import config
from kubernetes.client import Configuration
from tests.operator.contract.client import APPLY, CRDS, Client, eventually
from tests.operator.contract.kinds import definitions
from tests.operator.fake_api.server import FakeApi

REAL = os.environ.get("ONYX_TEST_KUBECONFIG", "")
SERVERS = ["fake", *(["real"] if REAL else [])]


@pytest.fixture(scope="session", params=SERVERS)
def endpoint(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A server that serves the kinds of `kinds.py`."""
    configuration = Configuration()
    if request.param == "real":
        config.load_kube_config(REAL, client_configuration=configuration)
        client = Client(configuration, forget=lambda: None)
        with contextlib.ExitStack() as installed:
            for definition in definitions():
                installed.enter_context(_installed(client, definition))
            yield client
        return
    with FakeApi() as api:
        for definition in definitions():
            api.create(definition)
        configuration.host = api.url
        yield Client(configuration, forget=api.store.compact)


@contextlib.contextmanager
def _installed(client: Client, crd: dict[str, Any]) -> Iterator[None]:
    path = f"{CRDS}/{crd['metadata']['name']}"
    answer = client.call("PATCH", path, crd, {"fieldManager": "contract"}, APPLY)
    assert answer.code in (200, 201), answer
    version, plural = crd["spec"]["versions"][0]["name"], crd["spec"]["names"]["plural"]
    served = f"/apis/{crd['spec']['group']}/{version}/{plural}"
    assert eventually(lambda: client.call("GET", served).code == 200)
    yield
    client.call("DELETE", path)


@pytest.fixture
def server(endpoint: Client) -> Iterator[Client]:
    """The same server, with a namespace of this test's own."""
    name = f"contract-{uuid.uuid4().hex[:8]}"
    assert endpoint.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    endpoint.namespace = name
    yield endpoint
    for each in endpoint.call("GET", endpoint.at("widgets")).body["items"]:
        if "finalizers" in each["metadata"]:
            endpoint.patch(each["metadata"]["name"], {"metadata": {"finalizers": None}})
    endpoint.call("DELETE", f"/api/v1/namespaces/{name}")
