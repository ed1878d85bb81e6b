"""A job over the log of a folder: its server is killed and frozen, and so are workers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.conftest import MODULES
from tests.support.jobs.chaos_files import ChaosFiles
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import ONYX, launcher

from onyx.processes.programs import Executable, Process

pytestmark = pytest.mark.server

SESSION_S = 3.0


class LogServers:
    """`onyx log-server`, one after the other in the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = self._start()

    def _start(self) -> Process:
        with open(os.devnull, "r+b") as nothing:
            streams = (nothing.fileno(),) * 3
            words = ["log-server", str(self.folder)]
            return launcher().launch(Executable(ONYX, words, dict(os.environ), streams=streams))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        self._process = self._start()

    def freeze(self, seconds: float) -> None:
        self._process.send_signal(signal.SIGSTOP)
        threading.Event().wait(seconds)
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LogServers]:
    made = LogServers(tmp_path / "log")
    yield made
    made.kill()


def test_kills_of_the_server_of_a_log_end_no_session_and_lose_nothing(
    server: LogServers, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=8_000)
    with Cluster(server.folder, tmp_path, MODULES, SESSION_S) as cluster:
        workers = cluster.start_workers(2, peers=4)
        job = cluster.submit(files.manifest())
        version = cluster.await_ready(job)
        groups = cluster.replica.groups
        for released in (2_000, 4_000, 6_000):
            files.open_gate(released)
            files.await_some()
            server.kill()
            server.start()
            files.await_reflected(released)
        assert cluster.replica.run(job).allocation_version == version
        assert cluster.replica.groups == groups
        files.open_gate()
        cluster.await_completed(job)
        assert all(worker.running for worker in workers)
        assert cluster.entries_named("group-leave-cluster") == []
    files.check_complete()


@pytest.mark.slow
def test_workers_die_and_freeze_while_the_server_of_their_log_does(
    server: LogServers, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=12_000)
    with Cluster(server.folder, tmp_path, MODULES, SESSION_S) as cluster:
        first, second, _ = cluster.start_workers(3, peers=4)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(4_000)
        files.await_some()

        dead = cluster.group_of(first)
        first.kill()
        server.kill()
        server.start()
        cluster.await_gone([dead])
        cluster.start_workers(1, peers=4)
        files.await_reflected(4_000)

        frozen = cluster.group_of(second)
        second.stop()
        files.open_gate(8_000)
        cluster.await_gone([frozen])
        second.resume()
        files.await_reflected(8_000)

        server.freeze(2 * SESSION_S)
        files.open_gate()
        cluster.await_completed(job)
    files.check_complete()
