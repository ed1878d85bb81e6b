"""Requests over HTTP: how many a second, and the CPU of one, over connections that stay.

    python -m benchmarks.http_requests [--requests N] [--connections N] [--json FILE]

One worker process with its own ZooKeeper. Clients are threads of another process with a socket
each, so their CPU is not that of the worker. Each request is one segment.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from benchmarks.figures import Figure, Measured, Options, parser, run
from msgspec.structs import replace

from onyx.settings import HttpSettings, Settings
from onyx.testing.env import with_test_env

ACKS = ("journal", "ack", "none")
KNOWN_TIMEOUT_S = 30.0


class Level(NamedTuple):
    """What was measured of one `ack`."""

    per_second: float
    cpu_us: float
    """CPU of the worker for one request."""
    median_ms: float
    p99_ms: float


def job() -> dict[str, Any]:
    """Requests, whose segments go nowhere."""
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "bench"},
        "spec": {
            "workflow": [["in", "out"]],
            "catalog": [
                {"name": "in", "type": "input", "plugin": "http"},
                {"name": "out", "type": "output", "plugin": "blackhole"},
            ],
        },
    }


class Client:
    """One connection."""

    def __init__(self, port: int, ack: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = b'{"n": 1234567, "name": "an order", "amount": 12.5}'
        head = f"POST /jobs/bench/in?ack={ack} HTTP/1.1\r\nHost: x\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body

    def post(self) -> int:
        """The status of one request."""
        self._socket.sendall(self._request)
        answer = self._socket.recv(65_536)
        while not answer.endswith(b"}}"):
            answer += self._socket.recv(65_536)
        return int(answer[9:12])

    def close(self) -> None:
        self._socket.close()


def _send(port: int, ack: str, count: int, seconds: list[float], codes: list[int]) -> None:
    with closing(Client(port, ack)) as client:
        for _ in range(count):
            started_s = time.perf_counter()
            codes.append(client.post())
            seconds.append(time.perf_counter() - started_s)


def _clients(port: int, connections: int, asked: Any) -> None:
    """The process of the clients: so many requests of an `ack` each time that it is asked."""
    while (now := asked.recv()) is not None:
        ack, requests = now
        asked.send(_sent(port, ack, requests, connections))


def _sent(port: int, ack: str, requests: int, connections: int) -> tuple[float, float, float]:
    """Seconds that it took, their median and the 99th percentile of one."""
    seconds: list[float] = []
    codes: list[int] = []
    started_s = time.perf_counter()
    each = requests // connections
    threads = [
        threading.Thread(target=_send, args=(port, ack, each, seconds, codes))
        for _ in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken_s = time.perf_counter() - started_s
    assert {code // 100 for code in codes} == {2}, codes
    seconds.sort()
    return taken_s, seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]


@contextmanager
def clients(port: int, connections: int) -> Iterator[Any]:
    """A process of clients, and what it is asked through."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_clients, args=(port, connections, theirs))
    process.start()
    try:
        yield ours
    finally:
        ours.send(None)
        process.join()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def level(asked: Any, ack: str, requests: int) -> Level:
    """So many requests."""
    before_s = _cpu_s()
    asked.send((ack, requests))
    taken_s, median_s, p99_s = asked.recv()
    cpu_s = _cpu_s() - before_s
    return Level(requests / taken_s, 1e6 * cpu_s / requests, 1e3 * median_s, 1e3 * p99_s)


def _await_known(port: int) -> None:
    ends_s = time.monotonic() + KNOWN_TIMEOUT_S
    with closing(Client(port, "ack")) as client:
        while client.post() != 200:
            assert time.monotonic() < ends_s, "the job does not run"
            time.sleep(0.1)


def measure(options: argparse.Namespace) -> Measured:
    found: dict[str, Level] = {}
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as folder:
        settings = replace(Settings(), data_dir=folder, http=HttpSettings(port=0))
        with with_test_env(2, (), settings) as env:
            env.submit(job())
            port = env.group.http_port
            assert port is not None
            _await_known(port)
            with clients(port, options.connections) as asked:
                for ack in ACKS:
                    if options.warm_up:
                        level(asked, ack, options.warm_up)
                    found[ack] = level(asked, ack, options.requests)
    figures = [
        Figure(f"{ack}, {name}", value, unit)
        for ack, its in found.items()
        for name, value, unit in (
            ("requests", its.per_second, "/s"), ("CPU of a request", its.cpu_us, "us"),
            ("p50", its.median_ms, "ms"), ("p99", its.p99_ms, "ms"),
        )
    ]  # fmt: skip
    return Measured(figures, {ack: its._asdict() for ack, its in found.items()})


def options() -> Options:
    made = parser(__doc__)
    made.sized("--requests", 4_000, 1_000, 20, "that count, of each ack")
    made.sized("--warm-up", 1_000, 250, 0, "requests that do not count")
    made.sized("--connections", 32, 32, 2)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
