"""What tests of OnyxJobs do and wait for: applied, edited, reported in status, events and log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, job, settings

from onyx_operator.clusters.pool import selector

FAST = settings(JOBS_PROGRESS_INTERVAL_S="0.05", JOBS_RESYNC_INTERVAL_S="0.5")


def phase(wanted: str, reason: str = "") -> Callable[[Any], bool]:
    def holds(found: Any) -> bool:
        status = found["status"]
        return status["phase"] == wanted and reason in ("", status["reason"])

    return holds


def condition(name: str, truth: str, reason: str = "") -> Callable[[Any], bool]:
    def holds(found: Any) -> bool:
        each = next(each for each in found["status"]["conditions"] if each["type"] == name)
        current = each["observedGeneration"] == found["metadata"]["generation"]
        return current and each["status"] == truth and reason in ("", each["reason"])

    return holds


def started(api: FakeApi, **spec: Any) -> str:
    """A job that runs; its id."""
    api.create(job(**spec))
    found = api.wait_for("onyxjobs", "job", phase("Running", "Running"))
    job_id: str = found["status"]["jobId"]
    return job_id


def declare(api: FakeApi, **spec: Any) -> None:
    api.patch("onyxjobs", "job", {"spec": spec})


def reported(api: FakeApi, *expected: str) -> None:
    """Wait for events about jobs with these reasons; they come after what they tell of."""
    pause = threading.Event()
    for _ in range(500):
        events = [
            each for each in api.list("events") if each["involvedObject"]["kind"] == "OnyxJob"
        ]
        if {each["reason"] for each in events} >= set(expected):
            return
        pause.wait(0.02)
    raise AssertionError(f"{expected} not among {[each['reason'] for each in events]}")


def add_pod(api: FakeApi, cluster: str) -> None:
    """A pod with a worker of a cluster, on this machine."""
    metadata = {"name": f"{cluster}-worker-0", "labels": selector(cluster)}
    spec = {"containers": [{"name": "worker", "image": "onyx-worker:test"}]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    api.patch("pods", metadata["name"], {"status": {"podIP": "127.0.0.1"}}, "status")


def submitted(logs: Logs) -> list[str]:
    return [str(command.id) for command in logs.commands("submit-job")]
