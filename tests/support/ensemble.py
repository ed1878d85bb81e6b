"""Three ZooKeeper servers on this machine, started by the command that a pod runs."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from tests.support.processes import stop

SERVERS = 3
WAIT_S = 60.0
_POLL_S = 0.05


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Server:
    """One `onyx zookeeper`."""

    def __init__(self, id: int, servers: str, folder: Path) -> None:
        self.id = id
        self.port, self._pages_port = free_ports(2)
        self._log = folder / f"{id}.log"
        self._environment = {
            **os.environ,
            "ONYX_ZOOKEEPER_SERVER_SERVERS": servers,
            "ONYX_ZOOKEEPER_SERVER_ID": str(id),
            "ONYX_ZOOKEEPER_SERVER_PORT": str(self.port),
            "ONYX_ZOOKEEPER_SERVER_DATA_DIR": str(folder / str(id)),
            "ONYX_TELEMETRY_METRICS_PORT": str(self._pages_port),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "onyx.cli", "zookeeper"],
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """SIGKILL, as a pod that is deleted without grace; the server goes with it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        return stop(self._process)

    def end(self) -> None:
        """Whatever it does."""
        if self.running:
            self.kill()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ready(self) -> bool:
        """Its readiness probe."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._pages_port}/readyz", timeout=2):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def leads(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False
        return b"Mode: leader" in answer

    def output(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


class RunningEnsemble:
    """A context manager: three servers that serve."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        ports = free_ports(2 * SERVERS)
        pairs = zip(ports[::2], ports[1::2], strict=True)
        servers = ",".join(f"127.0.0.1:{quorum}:{election}" for quorum, election in pairs)
        self.servers = [Server(id, servers, folder) for id in range(1, SERVERS + 1)]

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in self.servers)

    def __enter__(self) -> RunningEnsemble:
        for server in self.servers:
            server.start()
        try:
            self.await_ready(self.servers)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def await_ready(self, servers: list[Server]) -> None:
        """Wait until the readiness probes of these succeed."""
        pause = threading.Event()
        for _ in range(int(WAIT_S / _POLL_S)):
            if all(each.ready() for each in servers):
                return
            if not all(each.running for each in servers):
                break
            pause.wait(_POLL_S)
        outputs = "\n".join(f"--- {each.id}:\n{each.output()[-2_000:]}" for each in servers)
        raise AssertionError(f"not ready:\n{outputs}")

    def leader(self) -> Server:
        return next(each for each in self.servers if each.leads())

    def _end(self) -> None:
        for server in self.servers:
            server.end()
