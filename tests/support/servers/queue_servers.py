"""Real servers of queues for tests: Redis, and NATS with JetStream. They keep their data when they
are killed and started again, on the same port."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import WAIT_S
from tests.support.servers import queue_programs
from tests.support.servers.ports import free_port

from onyx.base.parent import end_with_parent

PASSWORD = "not-to-be-seen"


class Server:
    """A process that listens on a port."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._name = name
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.command: Sequence[Any] = ()
        self.environment: Mapping[str, str] = {}

    def start(self) -> None:
        """Start it on the same port and data as before, and wait until it listens."""
        assert self._process is None
        with open(self.folder / f"{self._name}.log", "ab") as log:
            self._process = subprocess.Popen(
                [str(each) for each in self.command],
                env={**os.environ, **self.environment},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent(),
            )
        ends_s = time.monotonic() + WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > ends_s or self._process.poll() is not None:
                    self.kill()
                    raise
                time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL; harmless when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class RedisServer(Server):
    """Everything is on its disk before it is answered."""

    def __init__(self, folder: Path, *options: str) -> None:
        """Skips the test when Redis has not been fetched. `{}` in options is the port."""
        super().__init__(folder, "redis")
        found = queue_programs.redis()
        if found is None:
            pytest.skip("Redis has not been fetched: make queues")
        program, self.environment = found
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        port = ("--port", self.port, "--dir", folder)
        self.command = [program, *port, *durable, *(each.format(self.port) for each in options)]
        self.start()


class NatsServer(Server):
    """With JetStream, whose files are synchronous."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        """Skips the test when NATS has not been built."""
        super().__init__(folder, "nats")
        program = queue_programs.nats()
        if program is None:
            pytest.skip("NATS has not been built: make queues")
        file = folder / "nats.conf"
        file.write_text(
            f"listen: {self.address}\n"
            f'jetstream {{ store_dir: "{folder}", sync_interval: always }}\n{settings}\n'
        )
        self.command = [program, "--config", file]
        self.start()
