"""A connection of a client: uvicorn's protocol, with limits of time and size.

Strangers may connect, so each phase of a connection has an end of its own: until a head is there,
until its body is, until an answer is read. A sweep of the server looks once a second (`overdue`),
so a request costs no timer. What a limit of the application answers politely is cut off here when a
client goes on sending all the same.

`_start_asgi_task` is no public name of uvicorn: the client that goes away has to cancel its task.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from onyx.serving.bodies import BodyLimits, Receive
from onyx.serving.replies import Reply, Send
from onyx.serving.shares import address_of

HEAD_BYTES_MAX = 16_384
HEAD_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 10.0
"""Longest time that a client takes to read its answer."""
PIPELINED_MAX = 16
"""Requests of one connection that wait while another one is answered."""
TOO_LARGE = "The request is too large."
PROBE_AFTER_S = 30
"""Time without a packet after which the system asks whether the other side is still there."""

_quiet = logging.getLogger("onyx.serving.protocol")
"""Instead of uvicorn's, which logs a line for each garbage that a stranger sends."""
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class AsgiApp(Protocol):
    """What is served: an ASGI function, and its words for what is no request."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request. A client that goes away cancels it."""

    def unreadable(self, why: str) -> Reply:
        """The reply to what cannot be read, which counts as a request."""


class BadRequest(Exception):
    """The head of a request is not taken; the parser of the connection stops."""


class HttpConnection(HttpToolsProtocol):
    """One connection. All on the thread of the event loop."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: BodyLimits,
        app: AsgiApp,
        on_lost: Callable[[HttpConnection], None],
    ) -> None:
        """
        Args:
            on_lost: is called when the connection has ended.
        """
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.logger = _quiet
        self.access_log = False
        self.lost = False
        self.under: asyncio.Transport | None = None
        """The connection below TLS."""
        self.address = ""
        """Whose it is, as soon as that is known."""
        self._on_lost = on_lost
        self._unreadable = app.unreadable
        self._why = ""
        """What is wrong with a head that was refused."""
        self._body_timeout_s = limits.body_timeout_s + HEAD_TIMEOUT_S
        """Beyond that of the application, which answers."""
        self._message_bytes_max = 2 * limits.body_bytes_max + HEAD_BYTES_MAX
        """Bytes of one request, with the framing of its chunks and what nobody reads any more."""
        self._task: asyncio.Task[None] | None = None
        self._early: list[bytes] | None = []
        """What came before `connection_made`: TLS begins on its own."""
        self._in_head = True
        self._message_bytes = 0
        self.idle_since_s = self.loop.time()
        self._ends_s = self.idle_since_s + HEAD_TIMEOUT_S
        """When what the client is to send has to be there."""
        self._unread_s = math.inf
        """When it has to have read what it was sent."""

    # --- of the event loop ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection is there."""
        super().connection_made(transport)
        self.address = address_of(self.client)
        _set_options(transport.get_extra_info("socket"))
        early, self._early = self._early, None
        for data in early or ():
            self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, and does not wait for an answer any more."""
        if self._early is not None:
            self.never_made()
            return
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._task is not None:
            self._task.cancel()
        self.never_made()

    def never_made(self) -> None:
        """There is no connection, or none any more."""
        self.lost = True
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless it is too much."""
        if self._early is not None:
            self._early.append(data)
            return
        if self.transport.is_closing():
            return
        self._message_bytes += len(data)
        if self._message_bytes > self._message_bytes_max:
            self._unreadable(TOO_LARGE)
            self.transport.abort()
            return
        super().data_received(data)
        if self._in_head and self._message_bytes > HEAD_BYTES_MAX:
            self.send_400_response(TOO_LARGE)
        elif self.idle and self._ends_s == math.inf and not self._between:
            self._ends_s = self.loop.time() + HEAD_TIMEOUT_S

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._unread_s = self.loop.time() + ANSWER_TIMEOUT_S

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        self._unread_s = math.inf

    # --- of the server ----------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no request waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def overdue(self, now_s: float) -> bool:
        """Whether the client has let a time pass that it was given."""
        if self.transport is not None and self.transport.is_closing():
            self._unread_s = min(self._unread_s, now_s + ANSWER_TIMEOUT_S)
        return now_s > min(self._ends_s, self._unread_s)

    def cut(self) -> None:
        """End the connection at once."""
        transport = self.under if self.transport is None else self.transport
        if transport is not None:
            transport.abort()

    # --- of the parser ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._message_bytes = True, 0
        self._ends_s = self.loop.time() + HEAD_TIMEOUT_S

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is there. What comes behind a body is none, and means nothing."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is there."""
        self._check_head()
        self._in_head = False
        self._ends_s = self.loop.time() + self._body_timeout_s
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is there as a whole."""
        super().on_message_complete()
        self._ends_s, self._message_bytes = math.inf, 0

    def on_response_complete(self) -> None:
        """It is answered."""
        self.idle_since_s = self.loop.time()
        if self.cycle.response_complete:  # else it is that of a request that waits
            self.cycle.body = bytearray()  # what nobody has read, and nobody counts any more
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What came is no request."""
        reply = self._unreadable(self._why or msg)
        if self.transport.is_closing():
            return
        head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        written = head % (reply.content_type.encode(), len(reply.body))
        self.transport.write(STATUS_LINE[reply.code] + written + reply.body)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._task = task

    def _check_head(self) -> None:
        """Refuse what the parser lets pass. Raises BadRequest."""
        hosts, size = 0, len(self.url)
        for name, value in self.headers:
            hosts += name == b"host"
            size += len(name) + len(value) + len(b": \r\n")
        if size > HEAD_BYTES_MAX:
            self._why = TOO_LARGE
        elif hosts != 1 and (hosts or self.parser.get_http_version() != "1.0"):
            self._why = "A request has one header Host."
        elif len(self.pipeline) >= PIPELINED_MAX:
            self._why = f"More than {PIPELINED_MAX} requests wait for their answers."
        else:
            return
        raise BadRequest(self._why)

    @property
    def _between(self) -> bool:
        """Whether the connection waits for another request, and nothing of that has come."""
        return self.timeout_keep_alive_task is not None


def _set_options(connection: socket.socket | None) -> None:
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # asyncio does so only where the protocol was named when the listener was made. Without it, the
    # body of an answer waits 40 ms for the client to acknowledge the head.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Learn of clients that have vanished without a word.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", PROBE_AFTER_S), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
