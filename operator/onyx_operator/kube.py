"""The one edge to the API server: requests through the `kubernetes` client, off the event loop.

Every resource, built-in or custom, is reached the same way: by a `Resource` and plain dicts. The
client's generated classes are not used, because they know no custom resources, drop unknown fields
and cost more than the request itself; its configuration, authentication and connections are.
Threads, waiting requests and times are bounded, so that a slow API server slows only its callers.
Rejected: the client's own dynamic client, which discovers the API at start and retries on its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import urllib3

from onyx.base.structs import UNREADABLE
from onyx.errors import OnyxError, Unavailable
from onyx.model.manifest import API_VERSION, CLUSTER_KIND, JOB_KIND
from onyx_operator.api_client import Configuration, api_client
from onyx_operator.event_series import EventSeries, RepeatedEvent
from onyx_operator.settings import KubeSettings

logger = logging.getLogger(__name__)

Object = dict[str, Any]
"""A Kubernetes object as plain data."""
MANAGER = "onyx-operator"
"""Field manager of what the operator applies."""

_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"
_MESSAGE_CHARACTERS_MAX = 1_000
_MARK_CHARACTERS = 12
_USUAL = (404, 409, 410)
"""Refusals that belong to work as usual: an object is not there, or has changed meanwhile."""
_MALFORMED_PATCH = "failed to create typed patch object"


class Resource(msgspec.Struct, frozen=True):
    """A kind of object: where it is served."""

    api_version: str
    """`v1`, `apps/v1`, `onyx.dev/v1beta1`."""
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """API version, without the group."""
        return self.api_version.rpartition("/")[2]

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Path of a URL: of all objects of a namespace (None: of all), or of one."""
        root = "/apis" if self.group else "/api"
        parts = ["namespaces", namespace, self.plural] if namespace else [self.plural]
        parts += [part for part in (name, subresource) if part]
        return f"{root}/{self.api_version}/" + "/".join(quote(part, safe="") for part in parts)


JOBS = Resource(API_VERSION, JOB_KIND, "onyxjobs")
CLUSTERS = Resource(API_VERSION, CLUSTER_KIND, "onyxclusters")
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
EVENTS = Resource("v1", "Event", "events")
NAMESPACES = Resource("v1", "Namespace", "namespaces")
SECRETS = Resource("v1", "Secret", "secrets")


class KubeError(OnyxError):
    """The API server refused a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        said = ": ".join(part for part in (f"{status} {reason}".strip(), message) if part)
        super().__init__(said[:_MESSAGE_CHARACTERS_MAX])
        self.status = status
        """HTTP status: 403, 409, 422, ..."""
        self.reason = reason
        """The API server's word: `Conflict`, `AlreadyExists`, `Invalid`, ..."""


class NotFound(KubeError):
    """404: the object, its namespace or its kind is not there."""


class Conflict(KubeError):
    """409: it changed meanwhile, exists already, or another manager owns a field."""


Observe = Callable[[str, int, float], None]
"""Called with every request: verb, HTTP status (0 when none came), seconds."""


class Kube:
    """Requests to the API server. All methods raise KubeError (NotFound, Conflict) when it refuses
    and Unavailable when it cannot be reached, answers 429 or 5xx, or too much is waiting."""

    def __init__(
        self,
        settings: KubeSettings,
        configuration: Configuration,
        observe: Observe = lambda verb, status, seconds: None,
    ) -> None:
        """`configuration`: where the API server is."""
        self._settings = settings
        configuration.retries = False
        configuration.connection_pool_maxsize = self._settings.threads_max
        self._client = api_client(configuration)
        self.mark = _mark(configuration)
        """Distinguishes this API server from others: a digest of its certificate authority."""
        self._threads = ThreadPoolExecutor(self._settings.threads_max, "onyx-kube")
        self._waiting = 0
        self._closed = False
        self._observe = observe
        self._events = EventSeries()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """The object, or None when there is none."""
        try:
            found: Object = await self._request("get", "GET", resource.path(namespace, name))
        except NotFound:
            return None
        return found

    async def list_all(
        self, resource: Resource, namespace: str | None = None, labels: str = ""
    ) -> list[Object]:
        """All objects (of a namespace) that match a label selector, page by page."""
        query = {"limit": str(self._settings.page_items)}
        if labels:
            query["labelSelector"] = labels
        found: list[Object] = []
        while True:
            page = await self._request("list", "GET", resource.path(namespace), query)
            found += page.get("items", ())
            query["continue"] = page.get("metadata", {}).get("continue", "")
            if not query["continue"]:
                return found

    async def create(self, resource: Resource, body: Object, *, dry_run: bool = False) -> Object:
        """Create an object; Conflict when its name is taken. A dry run only says whether."""
        path = resource.path(body["metadata"].get("namespace"))
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        query = {"dryRun": "All"} if dry_run else {}
        return await self._changed("create", "POST", path, query, full)

    async def apply(
        self, resource: Resource, body: Object, manager: str = MANAGER, *, dry_run: bool = False
    ) -> Object:
        """Create or change an object so that it has what `body` says (server-side apply, forced);
        fields that the manager applied before and no longer names go away. A dry run only says
        whether it could be done."""
        metadata = body["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        query = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self._changed("patch", "PATCH", path, query, full, _APPLY)

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Object | Sequence[Object],
        subresource: str = "",
    ) -> Object:
        """Change an object by a merge patch (a mapping) or a JSON patch (a list)."""
        path = resource.path(namespace, name, subresource)
        content_type = _MERGE if isinstance(body, Mapping) else _JSON_PATCH
        query = {"fieldManager": MANAGER}
        return await self._changed("patch", "PATCH", path, query, body, content_type)

    async def write_status(
        self, resource: Resource, body: Object, status: Mapping[str, Any]
    ) -> Object:
        """Merge `status` into the status of this version of an object; None removes a key. Conflict
        when the object has changed since: no write overwrites a change that its writer has not
        seen."""
        metadata = body["metadata"]
        version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        change: Object = {"metadata": version, "status": dict(status)}
        return await self.patch(resource, metadata["namespace"], metadata["name"], change, "status")

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, uid: str = ""
    ) -> bool:
        """Delete an object, only if it has this `uid` when given; its dependents follow in the
        background. False when it was not there."""
        options: Object = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self._request("delete", "DELETE", resource.path(namespace, name), body=options)
        except NotFound:
            return False
        return True

    async def event(
        self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Post an Event about an object; one that repeats is counted (see `event_series`).

        Best effort: an event that the API server refuses is dropped.
        """
        subject = (about["metadata"]["uid"], reason, warning)
        series = self._events.next(subject, message, time.time())
        if series is None:
            return
        body, namespace = event_body(about, reason, series, warning), about["metadata"]["namespace"]
        with contextlib.suppress(KubeError, Unavailable):
            if series.name:
                change = {key: body[key] for key in ("message", "lastTimestamp", "count")}
                with contextlib.suppress(NotFound):  # an Event lives for an hour
                    await self.patch(EVENTS, namespace, series.name, change)
                    return
            series.name = (await self.create(EVENTS, body))["metadata"]["name"]

    def close(self) -> None:
        """End the threads; requests that wait are dropped."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def _changed(
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str = "application/json",
    ) -> Object:
        """The object as it is after the request."""
        found: Object = await self._request(verb, method, path, query, body, content_type)
        return found

    async def _request(
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Any:
        if self._closed:
            raise Unavailable("the operator ends")
        if self._waiting >= self._settings.waiting_max:
            raise Unavailable(f"{self._waiting} requests wait for the API server already")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._threads, self._send, verb, method, path, query or {}, body, content_type
            )
        finally:
            self._waiting -= 1

    def _send(
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str,
    ) -> Any:
        started_s, status = time.monotonic(), 0
        try:
            status, answer = self._exchange(method, path, query, body, content_type)
            if 200 <= status < 300:
                return msgspec.json.decode(answer) if answer else None
        except (urllib3.exceptions.HTTPError, OSError, *UNREADABLE) as error:
            raise Unavailable(f"the API server cannot be reached: {error}") from error
        finally:
            self._observe(verb, status, time.monotonic() - started_s)
        refusal = _refusal(status, answer)
        if status not in _USUAL:
            logger.info("%s %s was refused: %s", method, path, refusal)
        raise refusal

    def _exchange(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str
    ) -> tuple[int, bytes]:
        """Over the client's connections and with its credentials; its own methods for this differ
        from version to version."""
        client = self._client
        headers = {**client.default_headers, "Accept": "application/json"}
        headers["Content-Type"] = content_type
        for each in client.configuration.auth_settings().values():
            headers[each["key"]] = each["value"]
        timeout = urllib3.Timeout(
            connect=self._settings.connect_timeout_s, read=self._settings.read_timeout_s
        )
        url = client.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else msgspec.json.encode(body)
        response = client.rest_client.pool_manager.request(
            method, url, body=data, headers=headers, timeout=timeout, retries=False
        )
        return response.status, response.data


def _mark(configuration: Configuration) -> str:
    trusted = configuration.ssl_ca_cert
    if not trusted:
        return ""
    return hashlib.sha256(Path(trusted).read_bytes()).hexdigest()[:_MARK_CHARACTERS]


def event_body(
    about: Mapping[str, Any], reason: str, series: RepeatedEvent, warning: bool
) -> Object:
    """An Event about an object, as the API takes it."""
    metadata = about["metadata"]
    where = {"namespace": metadata["namespace"]}
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {**where, "generateName": f"{metadata['name'][:50]}."},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            **where,
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": series.message[:_MESSAGE_CHARACTERS_MAX],
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": MANAGER,
        "firstTimestamp": timestamp(series.first_s),
        "lastTimestamp": timestamp(series.last_s),
        "count": series.count,
    }


def timestamp(seconds: float) -> str:
    """A time as the API writes it: RFC 3339, in UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def seconds(text: str) -> float | None:
    """Seconds since the epoch of a time as the API writes it; None when it is none."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _refusal(status: int, answer: bytes) -> OnyxError:
    """The exception for an answer that is no success. Its message goes into conditions and events:
    it names no request, which means nothing to the owner of an object."""
    try:
        found = msgspec.json.decode(answer, type=dict[str, Any])
    except UNREADABLE:
        found = {"message": answer[:200].decode(errors="replace")}
    reason = str(found.get("reason") or "")
    message = str(found.get("message") or "")
    if status == 500 and message.startswith(_MALFORMED_PATCH):
        # It says "internal error", and means an unknown field or a wrong type in what was applied.
        return KubeError(422, "Invalid", message.partition("): ")[2])
    if status == 429 or status >= 500:
        return Unavailable(f"the API server answered {KubeError(status, reason, message)}")
    kind = {404: NotFound, 409: Conflict}.get(status, KubeError)
    return kind(status, reason, message)
