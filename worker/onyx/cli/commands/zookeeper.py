"""`onyx zookeeper`: a ZooKeeper server for a laptop, or one of an ensemble on Kubernetes.

The server is a child of this process, which passes the signal to stop on, ends when it ends (not on
a full disk: then it goes on to say so, and starts it again), and answers the kubelet's probes at
the metrics port: an own HTTP endpoint costs a probe nothing, other than a command that is started
for each, and ZooKeeper's admin server would need four more jars.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Annotated

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from onyx.cli.command_line import Option
from onyx.errors import SettingsError, Unavailable
from onyx.log.server.config import ensemble_of
from onyx.log.server.member import Member
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.above import close_server_of
from onyx.processes.surroundings import settings, stop_signal
from onyx.settings import Settings, ZooKeeperSettings
from onyx.telemetry.collectors import ZooKeeperCollector
from onyx.telemetry.http_server import TelemetryServer

POLL_S = 0.2
FULL_WAIT_S = 30.0
"""After so long a server that has ended on a full disk is tried again: it removes old files when it
starts."""
PORT = 2181
DATA_DIR = ".onyx/zookeeper"


def zookeeper(
    port: Annotated[int | None, Option("--port", "Port to listen on.")] = None,
    data: Annotated[Path | None, Option("--data", "Folder for its data.")] = None,
) -> None:
    """Run a ZooKeeper server until SIGTERM.

    It is the real server, started from the jars inside the PySpark package. Alone it listens on the
    loopback interface; ONYX_ZOOKEEPER_SERVER_HOST, ..._SERVERS and others make an ensemble of it.
    """
    stop = stop_signal()
    found = settings()
    chosen = found.zookeeper_server
    chosen = replace(
        chosen,
        port=PORT if chosen.port is None else chosen.port,
        data_dir=chosen.data_dir or DATA_DIR,
    )
    if port is not None:
        chosen = replace(chosen, port=port)
    if data is not None:
        chosen = replace(chosen, data_dir=str(data))
    ensemble = ensemble_of(chosen, socket.gethostname())
    server = ZooKeeperServer(
        chosen.data_dir,
        chosen.port or 0,
        host=chosen.host,
        ensemble=ensemble,
        heap_mib=chosen.heap_mib,
        verbose=True,
        tls=chosen.tls,
    )
    closing = _Closing(server, found.zookeeper)
    with contextlib.ExitStack() as stack:
        member: Member | None = None
        if ensemble is not None:
            member = Member(server, ensemble, chosen.host, _say)
            stack.callback(member.close)
        _open_pages(found, closing, member, stack)
        stack.callback(server.stop)
        if member is None:
            server.launch()
        elif not member.start(stop):
            return
        _attend(closing, member, stop)


class _Closing:
    """Closes the nodes of a server to everybody but the user of `ONYX_ZOOKEEPER_AUTH_USER`, when it
    serves for the first time; until then it is not ready."""

    def __init__(self, server: ZooKeeperServer, zookeeper: ZooKeeperSettings) -> None:
        self.server = server
        self._zookeeper = zookeeper
        self.done = not zookeeper.auth_user and not zookeeper.auth_password_file

    def advance(self) -> None:
        """Close them if that has not been done; the server serves."""
        if self.done:
            return
        try:
            close_server_of(
                replace(self._zookeeper, address=self.server.address, close_root="always"),
                self.server.near_certificates,
            )
            self.done = True
        except Unavailable as error:
            _say(f"ZooKeeper at {self.server.address} is still open to everybody: {error}")


def _say(what: str) -> None:
    print(what, flush=True)


def _open_pages(
    found: Settings, closing: _Closing, member: Member | None, stack: contextlib.ExitStack
) -> None:
    telemetry, server = found.telemetry, closing.server
    if telemetry.metrics_port is None:
        return

    def ready() -> bool | str:
        waiting = member.obstacle if member is not None else ""
        if waiting or server.serves():
            return waiting or closing.done or "its nodes are still open to everybody"
        alone = member is None
        return server.full_disk() or ("starting" if alone else "no quorum: no leader is elected")

    registry = CollectorRegistry()
    registry.register(ZooKeeperCollector(server.figures, server.disk_bytes, server.heap_bytes))
    pages = TelemetryServer(
        telemetry.metrics_host,
        telemetry.metrics_port,
        registry,
        healthy=lambda: (
            server.exit_code is None or bool(server.full_disk()) or "the server has ended"
        ),
        ready=ready,
    )
    stack.callback(pages.close)


def _attend(closing: _Closing, member: Member | None, stop: threading.Event) -> None:
    """Until it is asked to end; says when it serves for the first time."""
    server, said = closing.server, False
    while not stop.wait(POLL_S):
        if server.exit_code is not None:
            _start_again(server, stop)
        if not said and server.serves() and (member is None or member.serves()):
            closing.advance()
            said = closing.done
            if said:
                _say(f"ZooKeeper serves at {server.address}, data in {server.data_dir}")


def _start_again(server: ZooKeeperServer, stop: threading.Event) -> None:
    """Start a server that has ended on a full disk, when there is room or after a while.

    Raises:
        Unavailable: it has ended for another reason.
    """
    what = f"ZooKeeper at {server.address} has ended with code {server.exit_code}"
    if not (full := server.full_disk()):
        raise Unavailable(f"{what}: see above")
    _say(f"{what}: {full}; it starts again when there is room")
    while full:
        ends_s = time.monotonic() + FULL_WAIT_S
        while server.full_disk() and time.monotonic() < ends_s:
            if stop.wait(POLL_S):
                return
        server.kill()
        try:
            server.launch()
            return
        except SettingsError:  # not even its configuration could be written
            if not (full := server.full_disk()):
                raise
