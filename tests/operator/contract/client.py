"""A client for contract tests: any request to any API server, through the `kubernetes` client.

It is as low as can be, because the tests are about what a server answers: codes, headers aside,
and bodies. Configuration, certificates and tokens are the library's business.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from kubernetes.client import ApiClient, Configuration
from tests.support.patience import WAIT_S

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "apis/contract.onyx.dev/v1"
POLL_S = 0.1


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))


class Client:
    """One API server, and a namespace in it."""

    def __init__(self, configuration: Configuration, forget: Callable[[], None]) -> None:
        self._client = ApiClient(configuration)
        self.forget = forget
        """Make the server forget the history of its objects, if it can."""
        self.namespace = ""

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        response = self._send(method, path, body, query, content, accept)
        raw = response.read()
        try:
            return Answer(response.status, json.loads(raw))
        except ValueError:
            return Answer(response.status, {"message": raw.decode(errors="replace")})

    def watch(self, path: str, timeout_s: int = 5, **query: str) -> Iterator[dict[str, Any]]:
        """Events of a watch until the server ends it; closed when the caller stops reading."""
        query |= {"watch": "true", "timeoutSeconds": str(timeout_s)}
        stream = self._send("GET", path, None, query, "application/json", "application/json")
        assert stream.status == 200, stream.read()
        try:
            for line in stream:
                yield json.loads(line)
        finally:
            stream.close()

    def at(self, plural: str, name: str = "", subresource: str = "", root: str = WIDGETS) -> str:
        """The path of a resource in our namespace."""
        parts = [root, "namespaces", self.namespace, plural, name, subresource]
        return "/" + "/".join(part for part in parts if part)

    def widget(self, name: str, spec: Mapping[str, Any] | None = None, **metadata: Any) -> Any:
        """Create a widget, and have it as it was stored."""
        body = widget(name, spec, **metadata)
        answer = self.call("POST", self.at("widgets"), body)
        assert answer.code == 201, answer
        return answer.body

    def get(self, name: str) -> Any:
        return self.call("GET", self.at("widgets", name)).body

    def patch(
        self, name: str, patch: Any, subresource: str = "", content: str = MERGE, **query: str
    ) -> Answer:
        path = self.at("widgets", name, subresource)
        return self.call("PATCH", path, patch, query, content)

    def apply(self, name: str, spec: Any, manager: str, **query: str) -> Answer:
        query |= {"fieldManager": manager}
        return self.call("PATCH", self.at("widgets", name), widget(name, spec), query, APPLY)

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, str] | None,
        content: str,
        accept: str,
    ) -> Any:
        """Over the client's connections; its own methods for this differ between versions."""
        configuration = self._client.configuration
        headers = {**self._client.default_headers, "Accept": accept, "Content-Type": content}
        for each in configuration.auth_settings().values():
            headers[each["key"]] = each["value"]
        return self._client.rest_client.pool_manager.request(
            method,
            configuration.host + path + (f"?{urlencode(query)}" if query else ""),
            body=None if body is None else json.dumps(body),
            headers=headers,
            timeout=WAIT_S,
            retries=False,
            preload_content=False,
        )


def widget(name: str, spec: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "contract.onyx.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": {"size": 1} if spec is None else dict(spec),
    }


def eventually(condition: Callable[[], bool]) -> bool:
    """Does the condition hold within a time limit? A fake's holds at once, so nothing waits."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
