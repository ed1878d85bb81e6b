"""A fake Kubernetes API server in this process, for tests of the operator without a cluster.

    with FakeApi(CRD_FILE) as api:
        api.create({"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", ...})
        os.environ["KUBECONFIG"] = str(api.kubeconfig(tmp_path))  # or ConnectionInfo(api.url)
        ...
        api.faults.add(Fault(verb="patch", resource="onyxjobs", subresource="status", code=409))
        api.wait_for("onyxjobs", "flights", lambda job: job["status"]["phase"] == "Completed")
        assert [each.target.verb for each in api.requests] == [...]

It runs in a thread with a loop of its own, so that blocking and asynchronous clients can use it
alike and an operator that is killed does not take it along. What it promises is in
`tests/operator/contract/`, by tests that a real API server passes too. What it does not have:
authentication, authorization (the request log is checked against the chart's rules instead),
conversion, OpenAPI pages, and controllers other than garbage collection, which is immediate.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from tests.operator.fake_api.doors import Door
from tests.operator.fake_api.faults import Faults
from tests.operator.fake_api.http import BODY_BYTES_MAX, Http, Recorded
from tests.operator.fake_api.kinds import Kind
from tests.operator.fake_api.patches import merge_patch
from tests.operator.fake_api.registry import Registry, Write
from tests.operator.fake_api.store import Object, Store
from tests.support.patience import WAIT_S

CRDS = sorted((Path(__file__).parents[3] / "crds").glob("*.yaml"))
"""Our own kinds."""
CLOSING_S = 0.05
"""Time for the event loop to see that connections are closed."""
_HAND = Write(manager="test")


class FakeApi:
    """The server. Methods may be called from any thread; those on objects go past HTTP, so they
    meet no fault and are not in the log of requests.

    Arguments:
        crds: CRD files whose kinds are served from the start.
        clock: gives the time for creation and deletion timestamps.
    """

    def __init__(
        self, *crds: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._registry = Registry(clock)
        self.faults = Faults()
        for crd in crds:
            self.create(deepcopy(_loaded(crd)))
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-api", daemon=True)
        self._changed = threading.Condition()
        self.url = ""

    def __enter__(self) -> FakeApi:
        self._thread.start()
        self._started.wait()
        self.store.listen(self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def store(self) -> Store:
        return self._registry.store

    @property
    def requests(self) -> list[Recorded]:
        """All requests so far, oldest first."""
        return list(self._http.recorded)

    def through(self, door: Door) -> str:
        """The URL of the server behind this door."""
        self._http.doors[door.name] = door
        return f"{self.url}/{door.name}"

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig that leads here; returns the file."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": {"token": "none-is-checked"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "current-context": "fake",
        }
        file = folder / "kubeconfig.yaml"
        file.write_text(yaml.safe_dump(config))
        return file

    def create(self, body: Mapping[str, Any], namespace: str = "default") -> Object:
        """Create an object as a user would; its namespace is its own or the given one."""
        kind = self._kind_of(body["kind"])
        where = body["metadata"].get("namespace", namespace) if kind.namespaced else ""
        return self._registry.create(kind, where, dict(body), _HAND)

    def get(self, resource: str, name: str, namespace: str = "default") -> Object | None:
        """The object, not to be changed; None if there is none."""
        kind = self._kind(resource)
        return self.store.get(kind, namespace if kind.namespaced else "", name)

    def list(self, resource: str, namespace: str = "") -> list[Object]:
        """All objects of a kind, not to be changed."""
        return self.store.list(self._kind(resource), namespace)

    def patch(
        self,
        resource: str,
        name: str,
        patch: Mapping[str, Any],
        subresource: str = "",
        namespace: str = "default",
    ) -> Object:
        """Merge this patch into an object; `subresource="status"` changes its status."""
        kind = self._kind(resource)
        where = namespace if kind.namespaced else ""
        return self._registry.update(
            kind, where, name, subresource, lambda old: merge_patch(old, patch), _HAND
        )

    def delete(self, resource: str, name: str, namespace: str = "default") -> None:
        """Delete an object; one with finalizers stays until they are released."""
        kind = self._kind(resource)
        self._registry.delete(kind, namespace if kind.namespaced else "", name)

    def wait_for(
        self,
        resource: str,
        name: str,
        condition: Callable[[Any], bool],
        namespace: str = "default",
        timeout_s: float = WAIT_S,
    ) -> Any:
        """Wait until a condition holds of an object (None while it is not there); returns it.

        Raises AssertionError with the object as it is when the time is up.
        """
        found: list[Any] = []

        def holds() -> bool:
            found[:] = [self.get(resource, name, namespace)]
            with contextlib.suppress(KeyError, TypeError, IndexError):
                return condition(found[0])
            return False

        with self._changed:
            assert self._changed.wait_for(holds, timeout_s), f"after {timeout_s} s: {found[0]}"
        return found[0]

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """The server is down: all connections are cut, and new ones too."""
        self._http.is_down = True
        self.cut()
        try:
            yield
        finally:
            self._http.is_down = False

    def cut(self) -> None:
        """Cut all watches."""

        def swap() -> None:
            self._http.cut.set()
            self._http.cut = asyncio.Event()

        self._loop.call_soon_threadsafe(swap)

    def _kind(self, resource: str) -> Kind:
        return next(each for each in self._registry.kinds.values() if each.plural == resource)

    def _kind_of(self, kind: str) -> Kind:
        return next(each for each in self._registry.kinds.values() if each.kind == kind)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._http = Http(self._registry, self.faults)
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._http.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._started.set()
        await self._stop.wait()
        # A connection whose accept is not complete when the server closes is never closed (a bug of
        # asyncio in Python 3.11): no more accepts, then time for those that have begun.
        for socket in site._server.sockets:
            self._loop.remove_reader(socket.fileno())
        await asyncio.sleep(CLOSING_S)
        await site.stop()
        self._http.cut.set()
        assert runner.server is not None
        connections = list(runner.server._connections.values())
        await runner.cleanup()
        for each in connections:  # one that is closed waits until its client has read everything
            each.abort()
        await asyncio.sleep(CLOSING_S)


@cache
def _loaded(crd: Path) -> Object:
    """Read once: it takes longer than most tests."""
    loaded: Object = yaml.safe_load(crd.read_text())
    return loaded
