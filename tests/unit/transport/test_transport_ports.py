"""Which ports a process may listen on, and which one it takes."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing

import pytest
from tests.support.servers.ports import free_ports

from onyx.errors import SettingsError
from onyx.processes.supervisor import Supervisor
from onyx.settings import Settings, TransportSettings, from_environment
from onyx.transport.grpc_transport import GrpcTransport
from onyx.transport.ports import ports_of


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("0", [0]),
        ("7700", [7700]),
        ("7700-7702", [7700, 7701, 7702]),
        ("7700, 7710-7711,7701", [7700, 7710, 7711, 7701]),
        ("7700-7701,7700", [7700, 7701]),
    ],
)
def test_ports_are_one_or_several_or_ranges(text: str, ports: list[int]) -> None:
    settings = from_environment({"ONYX_TRANSPORT_PORT": text})
    assert ports_of(settings.transport.port) == ports


@pytest.mark.parametrize("text", ["7701-7700", "0-3", "0,7700"])
def test_a_range_that_is_none_is_refused_by_its_setting(text: str) -> None:
    with pytest.raises(SettingsError, match="ONYX_TRANSPORT_PORT"):
        ports_of(text)


@pytest.mark.parametrize(
    "text", ["", "7700-65536", "7700-", "-1", "http", "7700;7701", "7700-7701-7702"]
)
def test_what_is_no_port_is_refused_when_settings_are_read(text: str) -> None:
    with pytest.raises(SettingsError, match="ONYX_TRANSPORT_PORT"):
        from_environment({"ONYX_TRANSPORT_PORT": text})


def test_each_process_takes_the_first_port_that_is_free() -> None:
    taken, first, second = free_ports(3)
    settings = TransportSettings(port=f"{taken},{first},{second}")
    with ExitStack() as stack:
        stack.enter_context(closing(socket.create_server(("127.0.0.1", taken))))
        found = []
        for _ in range(2):
            transport = GrpcTransport(settings, "t")
            stack.callback(transport.stop)
            found.append(transport.address)
        assert found == [f"127.0.0.1:{first}", f"127.0.0.1:{second}"]
        with pytest.raises(SettingsError, match="all of these ports are taken"):
            GrpcTransport(settings, "t")


def test_fewer_ports_than_processes_are_refused_before_one_starts() -> None:
    settings = Settings(transport=TransportSettings(port="7700"))
    with pytest.raises(SettingsError, match=r"needs?: give a range, such as 7700-7702"):
        Supervisor(settings, [1, 1, 1]).start()
