"""The HTTP endpoint, over a real socket on a free port."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from onyx.errors import Unavailable
from onyx.telemetry import http_server as requests_module
from onyx.telemetry.catalog import SESSION_LOSSES
from onyx.telemetry.http_server import CONNECTIONS_MAX, TelemetryServer
from onyx.telemetry.metrics import PrometheusGroupMetrics

STATE: dict[str, bool | str] = {"healthy": True, "ready": "joining: 2 of 4 peers"}


@pytest.fixture
def server() -> Iterator[TelemetryServer]:
    group = PrometheusGroupMetrics(version="1.2.3")
    group.add(SESSION_LOSSES)
    running = TelemetryServer(
        "127.0.0.1", 0, group.registry, lambda: STATE["healthy"], lambda: STATE["ready"]
    )
    yield running
    running.close()


def get(server: TelemetryServer, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_metrics_are_served(server: TelemetryServer) -> None:
    status, text = get(server, "/metrics")
    assert status == 200
    assert "onyx_zookeeper_session_losses_total 1.0" in text
    assert 'onyx_build_info{python="' in text


def test_only_the_series_that_are_named_are_served(server: TelemetryServer) -> None:
    status, text = get(server, "/metrics?name[]=onyx_build_info&name%5B%5D=none_like_this")
    assert status == 200
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line.partition("{")[0] for line in samples] == ["onyx_build_info"]


def test_health_and_readiness_follow_their_checks(
    server: TelemetryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get(server, "/livez") == (200, "ok\n")
    assert get(server, "/readyz") == (503, "joining: 2 of 4 peers\n")
    monkeypatch.setitem(STATE, "ready", True)
    monkeypatch.setitem(STATE, "healthy", False)
    assert get(server, "/readyz?verbose=1") == (200, "ok\n")
    assert get(server, "/livez") == (503, "no\n")


def test_a_listening_socket_that_was_handed_over_is_served() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = TelemetryServer("", 0, None, lambda: True, lambda: True, listener)
    assert server.port == listener.getsockname()[1]
    assert get(server, "/livez") == (200, "ok\n")
    assert get(server, "/metrics") == (404, "pages: /livez /readyz\n")
    server.close()


def test_it_ends_without_waiting_for_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "LOOK_INTERVAL_S", 3_600.0)
    TelemetryServer("127.0.0.1", 0, None, lambda: True, lambda: True).close()


def test_other_pages_name_those_that_exist(server: TelemetryServer) -> None:
    assert get(server, "/../etc/passwd") == (404, "pages: /livez /metrics /readyz\n")


def test_a_taken_port_is_told_with_what_to_do(server: TelemetryServer) -> None:
    registry = PrometheusGroupMetrics().registry
    with pytest.raises(Unavailable, match="free port"):
        TelemetryServer("127.0.0.1", server.port, registry, lambda: True, lambda: True)


@pytest.mark.parametrize(
    "says",
    [b"", b"G", b"garbage\r\n", b"GET /livez HTTP/1.1\r\nX: ", b"PRI * HTTP/2.0\r\n"],
)
def test_clients_that_never_finish_a_request_keep_nobody_out(
    server: TelemetryServer, says: bytes
) -> None:
    strangers = []
    try:
        for _ in range(3 * CONNECTIONS_MAX):
            each = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            each.sendall(says)
            strangers.append(each)
        assert get(server, "/livez")[0] == 200
        assert get(server, "/metrics")[0] == 200
        assert strangers[0].recv(1) == b"", "the oldest are closed"
    finally:
        for each in strangers:
            each.close()


def test_a_client_that_sends_its_request_byte_by_byte_has_so_long_for_all_of_it(
    monkeypatch: pytest.MonkeyPatch, server: TelemetryServer
) -> None:
    monkeypatch.setattr(requests_module, "REQUEST_TIMEOUT_S", 0.05)
    slow = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    with slow, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while not select.select([slow], [], [], 0.01)[0]:
            slow.sendall(b"x")
        assert slow.recv(1) == b""


def test_scrapers_that_do_not_read_do_not_delay_a_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()

    class Slow(Collector):
        def collect(self) -> Iterator[Metric]:
            release.wait()
            return iter(())

    registry = CollectorRegistry(auto_describe=False)
    monkeypatch.setattr(registry, "collect", lambda: Slow().collect())
    server = TelemetryServer("127.0.0.1", 0, registry, lambda: True, lambda: True)
    scrapers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    try:
        for each in scrapers:
            each.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert get(server, "/livez") == (200, "ok\n")
    finally:
        release.set()
        for each in scrapers:
            _read(each)
        server.close()


def _read(scraper: socket.socket) -> None:
    """What was answered before the server closes is not answered while it does."""
    scraper.settimeout(5)
    with scraper, contextlib.suppress(ConnectionResetError):
        while scraper.recv(65_536):
            pass


@pytest.mark.parametrize(
    "says", [b"POST /livez HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"x" * 9_000, b"\0" * 100 + b"\r\n\r\n"]
)
def test_what_is_no_get_is_closed_without_an_answer(server: TelemetryServer, says: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as stranger:
        stranger.sendall(says)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
