"""The HTTP layer of the fake: from a request to a call of the registry and back to a response."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml
from aiohttp import web
from tests.operator.fake_api import discovery
from tests.operator.fake_api.doors import Door, Shut
from tests.operator.fake_api.errors import ApiError, bad_request, forbidden, gone, no_such_path
from tests.operator.fake_api.faults import Fault, Faults
from tests.operator.fake_api.kinds import Kind
from tests.operator.fake_api.patches import json_patch, merge_patch, strategic_merge_patch
from tests.operator.fake_api.paths import Target, target_of
from tests.operator.fake_api.registry import Change, Registry, Write
from tests.operator.fake_api.scale import scale_of, scaled
from tests.operator.fake_api.selectors import selector
from tests.operator.fake_api.store import Object
from tests.operator.fake_api.table import table
from tests.operator.fake_api.values import written
from tests.operator.fake_api.watching import Event, Watch

TRUE = {"1", "t", "T", "true", "TRUE", "True"}
"""What a Go server reads as true in a query."""

BOOKMARK_PERIOD_S = 1.0
BODY_BYTES_MAX = 3 * 1024 * 1024
_PATCHES: dict[str, Callable[[Any, Any], Any]] = {
    "application/merge-patch+json": merge_patch,
    "application/json-patch+json": json_patch,
    "application/strategic-merge-patch+json": strategic_merge_patch,
}
_TOLD_WHEN_DELETED = {"pods", "services", "serviceaccounts", "persistentvolumeclaims"}
"""Kinds of which a deletion answers the object, and not only that it was deleted."""
_APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Recorded:
    """One request, as the log of requests keeps it."""

    target: Target
    agent: str
    code: int
    """HTTP code of the answer; 0 if the connection was cut."""
    created: bool = False
    """Did an apply create the object? It needs the right to create as well then."""


class Http:
    """Answers requests; one for each server."""

    def __init__(self, registry: Registry, faults: Faults) -> None:
        self._registry = registry
        self._faults = faults
        self.recorded: list[Recorded] = []
        self.doors: dict[str, Door] = {}
        self.is_down = False
        self.cut = asyncio.Event()
        """Set and replaced when all connections are to be cut."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The one handler of all paths."""
        path, door = self._enter(request.path)
        if self.is_down or (door is not None and door.is_shut):
            return _abort(request)
        watch = request.query.get("watch", "") in TRUE
        target = target_of(request.method, path, watch=watch)
        if target is None:
            page = discovery.page(path, self._registry.kinds.values())
            return _failure(no_such_path()) if page is None else _json(page)
        body = await _body(request)
        fault = self._faults.take(target)
        try:
            self._authorize(request, door, target)
            if fault:
                await asyncio.sleep(fault.delay_s)
            if fault and fault.drop and not fault.after_effect and target.verb != "watch":
                self._record(request, target, 0)
                return _abort(request)
            if fault and fault.code and target.verb != "watch":
                raise fault.error()
            if target.verb == "watch":
                return await self._watch(request, target, fault)
            with self._step(door, target):
                code, value, created = self._act(request, target, body)
        except Shut:
            self._record(request, target, 0)
            return _abort(request)
        except ApiError as error:
            self._record(request, target, error.code)
            return _failure(error)
        if fault and fault.after_effect:
            self._record(request, target, 0, created)
            return _abort(request)
        self._record(request, target, code, created)
        return _json(value, code)

    def _enter(self, path: str) -> tuple[str, Door | None]:
        """The path behind the door that it leads through, if it does."""
        first, _, rest = path.lstrip("/").partition("/")
        door = self.doors.get(first)
        return (f"/{rest}", door) if door else (path, None)

    def _authorize(self, request: web.Request, door: Door | None, target: Target) -> None:
        """An apply that would create its object needs the right to create it, too."""
        if door is None:
            return
        verbs = [target.verb]
        kind = self._registry.kinds.get((target.group, target.resource))
        if request.content_type == _APPLY and kind is not None and not target.subresource:
            there = self._registry.store.get(kind, target.namespace, target.name)
            verbs += [] if there else ["create"]
        for verb in verbs:
            if not door.allows(replace(target, verb=verb)):
                raise forbidden(verb, target.resource, target.group, target.namespace)

    def _step(self, door: Door | None, target: Target) -> contextlib.AbstractContextManager[None]:
        if door is None or target.verb == "list":
            return contextlib.nullcontext()
        resource = "/".join(part for part in (target.resource, target.subresource) if part)
        return door.step(f"{target.verb} {resource} {target.name}".strip())

    def _record(
        self, request: web.Request, target: Target, code: int, created: bool = False
    ) -> None:
        agent = request.headers.get("User-Agent", "")
        self.recorded.append(Recorded(target, agent, code, created))

    def _kind(self, target: Target) -> Kind:
        kind = self._registry.kinds.get((target.group, target.resource))
        if kind is None or kind.version != target.version:
            raise no_such_path()
        if target.subresource and target.subresource not in kind.subresources:
            raise no_such_path()
        if bool(target.namespace) and not kind.namespaced:
            raise no_such_path()
        return kind

    def _act(self, request: web.Request, target: Target, body: Any) -> tuple[int, Any, bool]:
        """Do what is asked; returns code, answer, and whether an apply created the object."""
        kind, how = self._kind(target), _how(request)
        everywhere = kind.namespaced and not target.namespace
        if everywhere and target.verb not in ("list", "deletecollection"):
            raise bad_request("an empty namespace may not be set during this request")
        match target.verb:
            case "get":
                value = self._registry.get(kind, target.namespace, target.name)
                if target.subresource == "scale":
                    return 200, scale_of(kind, value), False
                return 200, _shown(request, kind, [value], value), False
            case "list":
                return 200, self._list(request, kind, target), False
            case "create":
                if target.name:
                    raise no_such_path()
                value = self._registry.create(kind, target.namespace, _object(body), how)
                return 201, value, False
            case "update":
                return 200, self._change(kind, target, lambda _: _object(body), how), False
            case "patch":
                return self._patch(request, kind, target, body, how)
            case "delete":
                return 200, self._delete(request, kind, target, body, how), False
            case "deletecollection":
                doomed = self._selected(request, kind, target)
                for each in doomed:
                    one = replace(target, name=each["metadata"]["name"])
                    self._delete(request, kind, one, body, how)
                return 200, self._as_list(kind, doomed), False
        raise no_such_path()

    def _change(self, kind: Kind, target: Target, change: Change, how: Write) -> Object:
        if target.subresource != "scale":
            return self._registry.update(
                kind, target.namespace, target.name, target.subresource, change, how
            )
        change = scaled(kind, change)
        return scale_of(
            kind, self._registry.update(kind, target.namespace, target.name, "", change, how)
        )

    def _patch(
        self, request: web.Request, kind: Kind, target: Target, body: Any, how: Write
    ) -> tuple[int, Any, bool]:
        content = request.content_type
        if content == _APPLY:
            if "fieldManager" not in request.query:
                message = "fieldManager: Required value: is required for apply patch"
                raise ApiError(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {message}')
            force = request.query.get("force", "") in TRUE
            where = (target.namespace, target.name, target.subresource)
            value, created = self._registry.apply(kind, *where, _object(body), force, how)
            return 201 if created else 200, value, created
        if content not in _PATCHES or (kind.custom and "strategic" in content):
            message = f"the body of the request was in an unknown format: {content}"
            raise ApiError(415, "UnsupportedMediaType", message)
        patch = _PATCHES[content]
        return 200, self._change(kind, target, lambda old: patch(old, body), how), False

    def _delete(
        self, request: web.Request, kind: Kind, target: Target, body: Any, how: Write
    ) -> Any:
        options = {**dict(request.query), **(body if isinstance(body, dict) else {})}
        preconditions = options.get("preconditions") or {}
        value, is_gone = self._registry.delete(
            kind,
            target.namespace,
            target.name,
            replace(how, dry_run=how.dry_run or options.get("dryRun") in (["All"], "All")),
            propagation=options.get("propagationPolicy") or "Background",
            uid=preconditions.get("uid", ""),
            version=preconditions.get("resourceVersion", ""),
        )
        if not is_gone or kind.plural in _TOLD_WHEN_DELETED:
            return value
        details = {"name": target.name, "group": kind.group, "kind": kind.plural}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {**details, "uid": value["metadata"]["uid"]},
        }

    def _selected(self, request: web.Request, kind: Kind, target: Target) -> list[Object]:
        query = request.query
        wanted = selector(kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        return [each for each in self._registry.store.list(kind, target.namespace) if wanted(each)]

    def _list(self, request: web.Request, kind: Kind, target: Target) -> Any:
        """A page of a list; its `continue` token is the version and the place of the next item."""
        items = self._selected(request, kind, target)
        version, start = str(self._registry.store.revision), 0
        if token := request.query.get("continue", ""):
            version, _, at = token.partition(".")
            start = int(at)
            if int(version) < self._registry.store.compacted:
                raise gone("The provided continue parameter is too old")
        limit = int(request.query.get("limit", "0")) or len(items)
        page, rest = items[start : start + limit], max(0, len(items) - start - limit)
        metadata: dict[str, Any] = {"resourceVersion": version}
        if rest:
            metadata |= {"continue": f"{version}.{start + limit}", "remainingItemCount": rest}
        answer = {**self._as_list(kind, page), "metadata": metadata}
        return _shown(request, kind, page, answer)

    def _as_list(self, kind: Kind, items: list[Object]) -> dict[str, Any]:
        about = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
        metadata = {"resourceVersion": str(self._registry.store.revision)}
        return {**about, "metadata": metadata, "items": items}

    async def _watch(
        self, request: web.Request, target: Target, fault: Fault | None
    ) -> web.StreamResponse:
        kind, query = self._kind(target), request.query
        if fault and fault.code and fault.code != 410:
            raise fault.error()
        fields = query.get("fieldSelector", "")
        if target.name:
            fields = f"metadata.name={target.name}"
        wanted = selector(kind, query.get("labelSelector", ""), fields)
        watch = Watch(self._registry.store, kind, target.namespace, wanted)
        self._record(request, target, 200)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        stream = Stream(self, request, response, kind, fault)
        await stream.run(watch)
        return response


class Stream:
    """One open watch: writes events until the client leaves, time is up, or a fault cuts it."""

    def __init__(
        self,
        http: Http,
        request: web.Request,
        response: web.StreamResponse,
        kind: Kind,
        fault: Fault | None,
    ) -> None:
        self._http = http
        self._request = request
        self._response = response
        self._kind = kind
        self._fault = fault
        self._written = 0
        self._changed = asyncio.Event()

    async def run(self, watch: Watch) -> None:
        loop = asyncio.get_running_loop()
        store = self._http._registry.store
        silence = store.listen(lambda: loop.call_soon_threadsafe(self._changed.set))
        cut = asyncio.ensure_future(self._http.cut.wait())
        try:
            if not await self._events(watch, cut):
                _abort(self._request)
        except ApiError as error:
            self._fault = None  # it has been met; the error itself must get through
            await self._write([{"type": "ERROR", "object": error.status()}])
        except (ConnectionError, RuntimeError):
            pass  # the client has left
        finally:
            silence()
            cut.cancel()

    async def _events(self, watch: Watch, cut: asyncio.Future[Any]) -> bool:
        """Write events until time is up (True) or the connection is to be cut (False)."""
        query, loop = self._request.query, asyncio.get_running_loop()
        bookmarks = query.get("allowWatchBookmarks", "") in TRUE
        deadline = loop.time() + float(query.get("timeoutSeconds", "1800"))
        initial = query.get("sendInitialEvents", "") in TRUE
        events = watch.start(query.get("resourceVersion", ""), send_initial=initial)
        while True:
            if not await self._write(events):
                return False
            self._changed.clear()
            if events := watch.next():
                continue
            waiting = min(BOOKMARK_PERIOD_S, deadline - loop.time())
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait({cut, changed}, timeout=waiting, return_when=asyncio.FIRST_COMPLETED)
            is_changed = changed.done()
            changed.cancel()
            if cut.done():
                return False
            if not is_changed and bookmarks:
                events = [watch.bookmark()]
            if loop.time() >= deadline:
                await self._write(events)
                return True

    async def _write(self, events: list[Event]) -> bool:
        """Write events; False if a fault says that the stream ends here."""
        for event in events:
            if self._fault and self._written >= self._fault.after_events:
                if self._fault.drop:
                    return False
                if self._fault.code == 410:
                    raise gone()
            await self._response.write(written(event) + b"\n")
            self._written += 1
        if self._fault and self._fault.code == 410 and not self._fault.after_events:
            raise gone()
        return not (self._fault and self._fault.drop and not self._fault.after_events)


def _abort(request: web.Request) -> web.Response:
    """Cut the connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _json(value: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    body = written(value)
    return web.Response(body=body, status=code, headers=headers, content_type="application/json")


def _failure(error: ApiError) -> web.Response:
    pause = error.details.get("retryAfterSeconds")
    headers = {"Retry-After": str(pause)} if pause else {}
    return _json(error.status(), error.code, headers)


def _how(request: web.Request) -> Write:
    query = request.query
    agent = request.headers.get("User-Agent", "unknown").split("/")[0]
    return Write(
        manager=query.get("fieldManager", "") or agent,
        dry_run=query.get("dryRun", "") == "All",
        strict=query.get("fieldValidation", "") == "Strict",
    )


async def _body(request: web.Request) -> Any:
    raw = await request.read()
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        pass
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError:
        return raw


def _object(body: Any) -> Object:
    if not isinstance(body, dict):
        raise bad_request("the request's body is no object")
    return body


def _shown(request: web.Request, kind: Kind, items: list[Object], answer: Any) -> Any:
    """The answer as a table, for kubectl, if that is what the client asks for."""
    accepted = request.headers.get("Accept", "")
    return table(kind, items, answer["metadata"]) if "as=Table" in accepted else answer
