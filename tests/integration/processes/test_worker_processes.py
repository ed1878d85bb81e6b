"""Worker processes as a pod runs them: their pages, their leaving, and what no restart mends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.patience import WAIT_S
from tests.support.servers.ports import free_port
from tests.support.servers.tcp_proxy import TcpProxy

from onyx import api
from onyx.log.server.process import ZooKeeperServer
from onyx.processes.ends import ExitCode
from onyx.settings import Settings, TelemetrySettings, ZooKeeperSettings, to_environment

pytestmark = pytest.mark.server

POLL_S = 0.05


class Pod:
    """`onyx worker` with two processes of two peers each, configured by variables only."""

    def __init__(self, zookeeper: str, folder: Path, session_timeout_s: float) -> None:
        self.port = free_port()
        self.settings = Settings(
            tenancy_id=uuid.uuid4().hex,
            zookeeper=ZooKeeperSettings(zookeeper, session_timeout_s),
            telemetry=TelemetrySettings(metrics_port=self.port, log_format="json"),
            leave_timeout_s=10 * WAIT_S,
            job_paths=("/",),
        )
        self._log = folder / "pod.log"
        counts = {"ONYX_PEERS": "4", "ONYX_PROCESSES": "2"}
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "onyx.cli", "worker"],
                cwd=folder,
                env={**os.environ, **to_environment(self.settings), **counts},
                stdout=log,
                stderr=log,
            )

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of a page; 0 while there is none."""
        try:
            url = f"http://127.0.0.1:{self.port}{path}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def until(self, reached: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(int(WAIT_S / POLL_S)):
            if reached():
                return
            assert self.process.poll() is None, self.output()
            pause.wait(POLL_S)
        raise AssertionError(self.output())

    def output(self) -> str:
        return self._log.read_text()


@contextlib.contextmanager
def a_pod(zookeeper: str, folder: Path, session_timeout_s: float) -> Iterator[Pod]:
    pod = Pod(zookeeper, folder, session_timeout_s)
    try:
        yield pod
    finally:
        pod.process.kill()
        pod.process.wait()


def test_two_processes_are_one_pod(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """Nobody else is there to notice that it is gone: it leaves by the log or not at all."""
    with a_pod(zookeeper.address, tmp_path, session_timeout_s=60.0) as pod:
        reasons = set()

        def ready() -> bool:
            status, text = pod.page("/readyz")
            if status == 503:
                reasons.add(text)
            return status == 200

        pod.until(ready)
        assert all(each.startswith("process ") for each in reasons)
        assert pod.page("/livez") == (200, "ok\n")
        metrics = pod.page("/metrics")[1]
        for number in 0, 1:
            assert f'onyx_peers{{process="{number}",state="idle"}} 2.0' in metrics

        with api.connect(pod.settings) as client:
            replica = client.replica()
            sites = {site["metrics"] for site in replica.peer_sites.values()}
            assert sites == {f"127.0.0.1:{pod.port}"}
            assert len(replica.groups) == 2
            pod.process.send_signal(signal.SIGTERM)
            pod.process.send_signal(signal.SIGTERM)
            assert pod.process.wait(WAIT_S) == ExitCode.SUCCESS, pod.output()
            assert client.replica().groups == ()

    lines = [json.loads(line) for line in pod.output().splitlines()]
    assert {line["tenancy"] for line in lines} <= {pod.settings.tenancy_id}


@pytest.mark.slow
def test_a_wiped_zookeeper_ends_the_pod_with_a_code_of_its_own(tmp_path: Path) -> None:
    data = tmp_path / "zookeeper"
    with (
        ZooKeeperServer(data, port=free_port()) as server,
        a_pod(server.address, tmp_path, session_timeout_s=2.0) as pod,
    ):
        pod.until(lambda: pod.page("/readyz")[0] == 200)
        server.kill()
        shutil.rmtree(data)
        server.start()

        assert pod.process.wait(WAIT_S) == ExitCode.LOG_REPLACED, pod.output()
        assert "ZooKeeper lost its data" in pod.output()
        assert "Traceback" not in pod.output()
        with api.connect(pod.settings) as client:
            assert client.replica().groups == (), "nobody joined the empty log"


def test_a_worker_whose_zookeeper_went_first_does_not_wait_for_it(tmp_path: Path) -> None:
    """The time that it has for leaving is longer than the test waits."""
    with (
        ZooKeeperServer(tmp_path / "zookeeper", port=free_port()) as server,
        a_pod(server.address, tmp_path, session_timeout_s=2.0) as pod,
    ):
        pod.until(lambda: pod.page("/readyz")[0] == 200)
        server.kill()
        pod.process.send_signal(signal.SIGTERM)
        assert pod.process.wait(WAIT_S) == ExitCode.SUCCESS, pod.output()
        assert "leaving without deregistering" in pod.output()


def test_a_worker_waits_for_zookeeper_and_ends_when_told(tmp_path: Path) -> None:
    nowhere = free_port()
    with a_pod(f"127.0.0.1:{nowhere}", tmp_path, session_timeout_s=2.0) as pod:
        pod.until(lambda: pod.page("/readyz") == (503, "process 0: connecting to the log\n"))
        assert pod.page("/livez") == (200, "ok\n")
        pod.process.send_signal(signal.SIGTERM)
        assert pod.process.wait(WAIT_S) == ExitCode.SUCCESS, pod.output()


def test_a_worker_whose_packets_are_lost_says_so_and_returns(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    proxy = TcpProxy(zookeeper.port)
    with contextlib.closing(proxy), a_pod(proxy.address, tmp_path, session_timeout_s=3.0) as pod:
        pod.until(lambda: pod.page("/readyz")[0] == 200)
        proxy.hold()
        pod.until(lambda: "paused: the log has not answered" in pod.page("/readyz")[1])
        assert pod.page("/readyz")[0] == 503
        assert pod.page("/livez") == (200, "ok\n")
        assert "packets are lost" in pod.output()
        assert "tasks are paused" in pod.output()
        proxy.release()
        pod.until(lambda: pod.page("/readyz")[0] == 200)
