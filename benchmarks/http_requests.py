"""Requests over HTTP: how many a second, and the CPU of one, over connections that stay.

    python -m benchmarks.http_requests [requests] [connections]

One worker process with its own ZooKeeper. Clients are threads of another process with a socket
each, so their CPU is not that of the worker. Each request is one segment.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import socket
import sys
import tempfile
import threading
import time
from dataclasses import replace
from typing import Any, NamedTuple

from onyx.settings import HttpSettings, Settings
from onyx.testing.env import TestEnv, with_test_env

REQUESTS = 4_000
CONNECTIONS = 32
KNOWN_TIMEOUT_S = 30.0


class Measured(NamedTuple):
    """One level."""

    ack: str
    per_second: float
    cpu_us: float
    """CPU of the worker for one request."""
    median_ms: float
    p99_ms: float


def job() -> dict[str, Any]:
    """Requests, whose segments go nowhere."""
    return {
        "apiVersion": "onyx.dev/v1alpha1",
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


def _send(port: int, ack: str, count: int, seconds: list[float], codes: list[int]) -> None:
    client = Client(port, ack)
    for _ in range(count):
        started_s = time.perf_counter()
        codes.append(client.post())
        seconds.append(time.perf_counter() - started_s)


def _clients(port: int, ack: str, requests: int, connections: int, found: Any) -> None:
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
    found.send((taken_s, seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(env: TestEnv, ack: str, requests: int, connections: int) -> Measured:
    """Requests of one level."""
    port = env.group.http_port
    assert port is not None
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    given = (port, ack, requests, connections, theirs)
    process = context.Process(target=_clients, args=given)
    before_s = _cpu_s()
    process.start()
    taken_s, median_s, p99_s = ours.recv()
    cpu_s = _cpu_s() - before_s
    process.join()
    return Measured(ack, requests / taken_s, 1e6 * cpu_s / requests, 1e3 * median_s, 1e3 * p99_s)


def _await_known(port: int) -> None:
    ends_s = time.monotonic() + KNOWN_TIMEOUT_S
    while Client(port, "ack").post() != 200:
        assert time.monotonic() < ends_s, "the job does not run"
        time.sleep(0.1)


def main(requests: int = REQUESTS, connections: int = CONNECTIONS) -> None:
    """Print a line for each level."""
    with tempfile.TemporaryDirectory() as folder:
        settings = replace(Settings(), data_dir=folder, http=HttpSettings(port=0))
        with with_test_env(2, (), settings) as env:
            env.submit(job())
            assert env.group.http_port is not None
            _await_known(env.group.http_port)
            for ack in ("journal", "ack", "none"):
                measure(env, ack, requests // 4, connections)
                print(json.dumps(measure(env, ack, requests, connections)._asdict()), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
