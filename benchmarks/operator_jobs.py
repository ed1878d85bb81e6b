"""OnyxJobs reconciled by one operator, from `kubectl apply` to the status. `python -m
benchmarks.operator_jobs [--jobs 1000]`

The operator is a process of its own, as in its pod; ZooKeeper is the real server. The API server is
the tests' fake one, in the process that makes the jobs: it shares the machine with the operator,
and what it takes is part of the time. A job counts as reconciled when it is in the log and its
status says so. Then all are deleted: killed in the log, and let go.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from benchmarks.figures import Figure, Measured, Options, parser, run
from tests.operator.fake_api.server import FakeApi

from onyx.log.server.process import ZooKeeperServer

ROOT = Path(__file__).parents[1]
GOAL_S, GOAL_MB = 20.0, 200.0
TIMEOUT_S = 300.0
SAMPLE_S = 0.1
SPEC: dict[str, Any] = {
    "workflow": [["read", "work"], ["work", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "generator", "batchSize": 100},
        {"name": "work", "type": "function", "fn": "work.tasks:work", "batchSize": 100},
        {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 100},
    ],
}


class Watcher:
    """The operator's process and the most memory that it was seen with."""

    def __init__(self, api: FakeApi, zookeeper: str, folder: Path) -> None:
        environment = {
            **os.environ,
            "KUBECONFIG": str(api.kubeconfig(folder)),
            "ONYX_OPERATOR_SERVER_HOST": "127.0.0.1",
            "ONYX_OPERATOR_SERVER_PORT": "0",
            "ONYX_OPERATOR_NAMESPACES": "default",
            "ONYX_OPERATOR_ZOOKEEPER_ADDRESSES": zookeeper,
        }
        command = [sys.executable, "-m", "onyx_operator"]
        self.process = subprocess.Popen(command, env=environment)
        self._seen = psutil.Process(self.process.pid)
        self.most_mb = 0.0

    def until(self, what: str, check: Callable[[], bool]) -> float:
        """Wait; the seconds that it took."""
        started_s = time.monotonic()
        while not check():
            assert self.process.poll() is None, "the operator has ended"
            assert time.monotonic() < started_s + TIMEOUT_S, f"not in time: {what}"
            self.most_mb = max(self.most_mb, self._seen.memory_info().rss / 1e6)
            time.sleep(SAMPLE_S)
        return time.monotonic() - started_s

    def rest_mb(self) -> float:
        return float(self._seen.memory_info().rss / 1e6)

    def used_s(self) -> float:
        """CPU time so far."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)


def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "onyx.dev/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


def reconciled(api: FakeApi) -> int:
    return sum(
        job.get("status", {}).get("phase") == "Waiting" for job in api.list("onyxjobs", "default")
    )


def measure(options: argparse.Namespace) -> Measured:
    count = options.jobs
    with (
        tempfile.TemporaryDirectory() as name,
        ZooKeeperServer(Path(name) / "zookeeper") as server,
        FakeApi(*sorted((ROOT / "crds").glob("*.yaml"))) as api,
    ):
        cluster = {"zookeeper": {"address": server.address}, "replicas": 0}
        api.create(resource("OnyxCluster", "onyx", cluster))
        api.create(resource("OnyxJob", "first", SPEC))
        operator = Watcher(api, server.address, Path(name))
        try:
            return _measure(api, operator, count)
        finally:
            operator.process.terminate()
            operator.process.wait(TIMEOUT_S)


def _measure(api: FakeApi, operator: Watcher, count: int) -> Measured:
    operator.until("the first job", lambda: reconciled(api) == 1)
    rest_mb, requests = operator.rest_mb(), len(api.requests)
    used_s, started_s = operator.used_s(), time.monotonic()
    for index in range(count):
        api.create(resource("OnyxJob", f"job-{index}", SPEC))
    operator.until("all jobs", lambda: reconciled(api) == count + 1)
    taken_s, used_s = time.monotonic() - started_s, operator.used_s() - used_s
    requests = len(api.requests) - requests
    started_s = time.monotonic()
    for job in api.list("onyxjobs", "default"):
        api.delete("onyxjobs", job["metadata"]["name"])
    operator.until("all gone", lambda: not api.list("onyxjobs", "default"))
    gone_s = time.monotonic() - started_s
    note = f"{used_s:.1f} s of CPU; {requests} requests to the API server on the same machine"
    figures = [
        Figure(f"{count} OnyxJobs applied and reconciled", taken_s, "s", GOAL_S, note=note),
        Figure(f"{count} OnyxJobs deleted, killed and let go", gone_s, "s", GOAL_S),
        Figure("memory of the operator at most", operator.most_mb, "MB", GOAL_MB,
               note=f"{rest_mb:.0f} MB with one job"),
    ]  # fmt: skip
    return Measured(figures, {"requests": requests, "rest_mb": rest_mb})


def options() -> Options:
    made = parser(__doc__)
    made.sized("--jobs", 1_000, 100, 3)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
