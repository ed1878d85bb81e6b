"""kopf for one namespace (or for all), on a thread with an event loop of its own: the watches.

kopf brings the streams: lists, watches, bookmarks, reconnections, renewed credentials. A refusal
that it does not expect (403 when a Role has gone with its namespace) ends it, and with it every
task of its event loop. So each namespace has a kopf and a loop of its own, and what happens to one
stays there; whoever started the cell learns that it has ended and why.

A cell closes its HTTP sessions itself, after kopf has ended: when one watch ends with an error,
kopf closes its session first and cancels the other watches last, and a watch that reconnects in
between opens a session that kopf never closes. The vault, in which kopf keeps its sessions, has no
public name. (A session handed to kopf instead is no way out: kopf closes it, and then a watch
that reconnects swallows its cancellation and never ends.)

What kopf would write into objects (annotations with copies of the spec, finalizers) is avoided by
registering event handlers only; its peering is off, because two operators would do the same work
twice, which is harmless. Rejected: all namespaces in one kopf, which one of them ends; watches of
our own, which would be kopf's streams written again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

import kopf
from kopf._cogs.structs.credentials import Vault

from onyx.tls.contexts import lenient
from onyx_operator.api_client import Configuration
from onyx_operator.kube import Object, Resource

ALL = ""
"""The scope that is all namespaces."""
WATCH_LIFETIME_S = 240
"""A watch is made anew after this, so that one that died silently does not stay dead."""
REQUEST_TIMEOUT_S = 30
STOP_TIMEOUT_S = 5.0
"""Longest wait for kopf when a cell is stopped. What has not ended then is cancelled."""
CANCELLATIONS_MAX = 20
CANCELLED_WAIT_S = 0.1
"""Longest wait behind each. A watch that reconnects swallows one, and ends by another."""

Deliver = Callable[[Resource, str, Object], None]
"""Called on the event loop of the operator with an event: the kind, kopf's word for what has
happened (`ADDED`, `MODIFIED`, `DELETED`, or None while it lists), and the object."""

logger = logging.getLogger(__name__)
# What ends a cell is reported once, by whoever started it, and without a traceback.
logging.getLogger("kopf").setLevel(logging.CRITICAL)


class Cell:
    """A kopf of its own for one scope. Belongs to the event loop on which it is made.

    Args:
        scope: a namespace, or `ALL`.
        watched: the kinds, each with a label selector, which may be empty.
    """

    def __init__(
        self,
        configuration: Configuration,
        scope: str,
        watched: Sequence[tuple[Resource, str]],
        deliver: Deliver,
    ) -> None:
        self._configuration, self._scope = configuration, scope
        self._watched, self._deliver = watched, deliver
        self._loop = asyncio.get_running_loop()
        self._inner = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        name = f"onyx-watch-{scope or 'all'}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def ended(self) -> str:
        """Wait until kopf has ended; the reason. Whoever waits may be cancelled."""
        return await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """End kopf, which no event is taken from any more. What does not end in time would spin on
        its thread for minutes, so its loop is stopped, and all that is left there cancelled."""
        self._deliver = _ignore
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended already
            self._inner.call_soon_threadsafe(self._stop.set)
        try:
            await asyncio.wait([self._ended], timeout=STOP_TIMEOUT_S)
        finally:  # also when whoever waits is cancelled
            if not self._ended.done():
                with contextlib.suppress(RuntimeError):
                    self._inner.call_soon_threadsafe(self._inner.stop)

    def _run(self) -> None:
        try:
            self._inner.run_until_complete(self._operate())
            reason = "kopf has ended"
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
        with contextlib.suppress(RuntimeError):  # it was stopped while it ended by itself
            self._inner.run_until_complete(_cancel_all())
        self._inner.close()
        with contextlib.suppress(RuntimeError):  # the operator has ended
            self._loop.call_soon_threadsafe(self._finish, reason)

    def _finish(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)

    async def _operate(self) -> None:
        self._inner.set_exception_handler(_left_behind)
        vault = Vault()
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=self._settings(),
                standalone=True,
                clusterwide=self._scope == ALL,
                namespaces=[self._scope] if self._scope else [],
                stop_flag=self._stop,
                vault=vault,
            )
        finally:
            await vault.close()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        def login(**_: Any) -> kopf.ConnectionInfo:
            return credentials(self._configuration)

        for resource, _ in self._watched:
            handler = self._handler(resource)
            where = (resource.group, resource.version, resource.plural)
            kopf.on.event(*where, registry=registry, id=resource.plural)(handler)
        return registry

    def _handler(self, resource: Resource) -> Callable[..., Any]:
        async def pass_on(event: kopf.RawEvent, **_: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the operator has ended
                self._loop.call_soon_threadsafe(
                    lambda: self._deliver(resource, str(event["type"]), dict(event["object"]))
                )

        return pass_on

    def _settings(self) -> kopf.OperatorSettings:
        found = kopf.OperatorSettings()
        found.posting.enabled = False
        found.persistence.diffbase_storage = _NoMemory()
        found.process.ultimate_exiting_timeout = None
        found.scanning.disabled = self._scope != ALL
        found.watching.server_timeout = WATCH_LIFETIME_S
        found.networking.request_timeout = REQUEST_TIMEOUT_S
        found.networking.error_backoffs = ()  # a cell that ends is started again, with a list
        for resource, labels in self._watched:
            if labels:
                found.watching.label_selectors[resource.group, resource.plural] = labels
        return found


async def _cancel_all() -> None:
    """Cancel all other tasks of this loop, until they end or have swallowed it too often."""
    own = {asyncio.current_task()}
    for _ in range(CANCELLATIONS_MAX):
        left = asyncio.all_tasks() - own
        if not left:
            return
        for each in left:
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # one of them cancels all that it finds
            await asyncio.wait(left, timeout=CANCELLED_WAIT_S)


def _left_behind(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tasks that kopf leaves behind when it ends are nobody's concern."""
    logger.debug("a watch that has ended: %s", context.get("message"))


def _ignore(resource: Resource, event: str, body: Object) -> None:
    """Nothing is heard of a cell that was stopped."""


def credentials(configuration: Configuration) -> kopf.ConnectionInfo:
    """Address and credentials in the client's configuration; a token may have been renewed."""
    header = configuration.get_api_key_with_prefix("BearerToken")
    header = header or configuration.get_api_key_with_prefix("authorization") or ""
    return _LenientConnection(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        token=header.rpartition(" ")[2] or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


class _LenientConnection(kopf.ConnectionInfo):
    def as_ssl_context(self) -> ssl.SSLContext:
        return lenient(super().as_ssl_context())


class _NoMemory(kopf.DiffBaseStorage):
    """kopf compares each event of an object with its last state, for handlers that we do not have:
    nothing is copied, stored or compared. (Its default makes two deep copies an event.)"""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        return {}

    def fetch(self, *, body: Any) -> Any:
        return None

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Nothing is stored in objects."""
