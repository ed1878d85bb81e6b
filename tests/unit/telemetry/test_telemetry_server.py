"""The HTTP endpoint, over a real socket on a free port."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from onyx.errors import Unavailable
from onyx.telemetry import server as server_module
from onyx.telemetry.metrics import PrometheusGroupMetrics
from onyx.telemetry.server import TelemetryServer

STATE: dict[str, bool | str] = {"healthy": True, "ready": "joining: 2 of 4 peers"}


@pytest.fixture
def server() -> Iterator[TelemetryServer]:
    group = PrometheusGroupMetrics(version="1.2.3")
    group.session_lost()
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


def test_other_pages_name_those_that_exist(server: TelemetryServer) -> None:
    assert get(server, "/../etc/passwd") == (404, "pages: /livez /metrics /readyz\n")


def test_a_taken_port_is_told_with_what_to_do(server: TelemetryServer) -> None:
    registry = PrometheusGroupMetrics().registry
    with pytest.raises(Unavailable, match="free port"):
        TelemetryServer("127.0.0.1", server.port, registry, lambda: True, lambda: True)


def test_clients_that_say_nothing_do_not_keep_others_out_for_good(
    monkeypatch: pytest.MonkeyPatch, server: TelemetryServer
) -> None:
    monkeypatch.setattr(server_module._Handler, "timeout", 0.05)
    silent = [
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
        for _ in range(server_module.THREADS_MAX)
    ]
    try:
        assert get(server, "/livez")[0] == 200
        for connection in silent:
            assert connection.recv(1) == b"", "closed by the server"
    finally:
        for connection in silent:
            connection.close()
