"""Requests over HTTP, in pieces, to the server of a worker without its sockets."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
from tests.fuzz.mutating import mutated
from tests.support.servers.fake_requests import FakeRequests

from onyx.base.seams import SystemClock
from onyx.gateway.app import App
from onyx.requests.content import Refused, segments_of
from onyx.requests.request import Answer, Append, Status
from onyx.rights import of_its_author
from onyx.serving.server import HttpServer
from onyx.settings import HttpSettings, Settings
from onyx.telemetry.interface import NULL_GROUP

HEAD = b"POST /jobs/orders/in?ack=accepted HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\n"
ROWS = [
    {"n": number, "who": "x" * number, "at": None, "of": [1.5, {"a": True}]} for number in range(5)
]
TURNS = 8
_ANSWERS = re.compile(rb"(HTTP/1\.1 \d{3} .*)?", re.DOTALL)


def seeds() -> list[bytes]:
    """Right requests."""
    sink = pa.BufferOutputStream()
    table = pa.table({"n": [1, 2], "who": ["a", None]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    lines = b"\n".join(msgspec.json.encode(each) for each in ROWS)
    chunked = HEAD + b"content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    return [
        _request(b"application/json", json.dumps(ROWS).encode()),
        _request(b"application/vnd.apache.arrow.stream", sink.getvalue().to_pybytes()),
        chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(lines), lines),
        _request(b"application/json", b"{}") * 3,
        b"GET /jobs/orders/state/w?limit=5&from=1 HTTP/1.1\r\nhost: a\r\naccept: */*\r\n\r\n",
    ]


def _request(kind: bytes, body: bytes) -> bytes:
    return HEAD + b"content-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


class Gateway:
    """A server whose connections are fed by hand."""

    def __init__(self) -> None:
        self._unexpected: list[dict[str, Any]] = []
        settings = of_its_author(Settings(http=HttpSettings(port=0)))
        self._app = App(settings, _Decoding(), SystemClock(), NULL_GROUP)
        with socket.socket() as listener:
            self._server = HttpServer(settings.http, self._app, listener, None)

    def attack(self, random: Random, seed: bytes) -> None:
        """One connection."""
        asyncio.run(self._served(random, mutated(random, seed)))

    async def _served(self, random: Random, data: bytes) -> None:
        asyncio.get_running_loop().set_exception_handler(self._raised)
        connection, transport = self._server._accepted(), _Transport()
        connection.connection_made(transport)
        while data and not transport.closing:
            size = random.choice((1, 17, len(data)))
            connection.data_received(data[:size])
            data = data[size:]
            if random.random() < 0.3:
                await asyncio.sleep(0)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not self._unexpected, self._unexpected
        assert _ANSWERS.fullmatch(transport.written), transport.written[:200]
        assert b"a bug in Onyx" not in transport.written, transport.written
        assert self._app.active == 0
        assert self._server.connections == 0

    def _raised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._unexpected.append(context)


class _Decoding(FakeRequests):
    """Takes what a worker takes."""

    async def append(self, append: Append) -> Answer:
        try:
            segments = segments_of(append.payload)
        except Refused as refused:
            return Answer(Status.INVALID, str(refused), refused=refused.rows)
        return Answer(Status.ACCEPTED, segments=len(segments))


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1), "sockname": ("10.0.0.2", 2)})
        self.written = b""
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass
