"""Three ZooKeeper servers on this machine, started by the command that a pod runs; or one alone,
in the folder of the first."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.patience import WAIT_S
from tests.support.servers.ports import free_ports
from tests.support.servers.processes import stop

SERVERS = 3
_POLL_S = 0.05


class Server:
    """One `onyx zookeeper`; alone if `servers` names no others."""

    def __init__(self, id: int, servers: str, folder: Path) -> None:
        self.id = id
        self.folder = folder / str(id)
        self.port, self._pages_port = free_ports(2)
        self._servers = servers
        self._log = folder / f"{id}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "onyx.cli", "zookeeper"],
                env=self._environment(),
                stdout=log,
                stderr=log,
            )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ONYX_ZOOKEEPER_SERVER_SERVERS": self._servers,
            "ONYX_ZOOKEEPER_SERVER_ID": str(self.id),
            "ONYX_ZOOKEEPER_SERVER_PORT": str(self.port),
            "ONYX_ZOOKEEPER_SERVER_DATA_DIR": str(self.folder),
            "ONYX_TELEMETRY_METRICS_PORT": str(self._pages_port),
        }

    def wait(self) -> int:
        """Until it ends by itself; the exit code."""
        assert self._process is not None
        return self._process.wait(WAIT_S)

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

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def lose_volume(self) -> None:
        """Kill it, and remove what it had."""
        self.kill()
        shutil.rmtree(self.folder)

    def ready(self) -> bool:
        """Its readiness probe."""
        return self.obstacle() == ""

    def obstacle(self) -> str:
        """What its readiness probe says; empty when it is ready."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._pages_port}/readyz", timeout=2):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except (OSError, urllib.error.URLError) as error:
            return str(error)

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


class Ensemble:
    """A context manager that ends the servers; nothing is started."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        ports = free_ports(3 * SERVERS)
        places = [ports[first : first + 3] for first in range(0, len(ports), 3)]
        servers = ",".join(":".join(["127.0.0.1", *map(str, place)]) for place in places)
        self.servers = [Server(id, servers, folder) for id in range(1, SERVERS + 1)]
        self.alone = Server(1, "", folder)

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in self.servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in (*self.servers, self.alone):
            server.end()

    def start(self, *servers: Server) -> None:
        """Start these, all if none is named, and wait until they are ready."""
        for server in servers or self.servers:
            server.start()
        self.await_ready(list(servers or self.servers))

    def await_obstacle(self, server: Server, text: str) -> None:
        """Wait until the readiness probe of a server says this."""
        pause = threading.Event()
        for _ in range(int(WAIT_S / _POLL_S)):
            if text in server.obstacle():
                return
            pause.wait(_POLL_S)
        raise AssertionError(f"{server.obstacle()}\n{server.output()[-2_000:]}")

    def await_output(self, server: Server, text: str) -> None:
        """Wait until a server has written this."""
        pause = threading.Event()
        for _ in range(int(WAIT_S / _POLL_S)):
            if text in server.output():
                return
            pause.wait(_POLL_S)
        raise AssertionError(server.output()[-2_000:])

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


class RunningEnsemble(Ensemble):
    """A context manager: three servers that serve."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self
