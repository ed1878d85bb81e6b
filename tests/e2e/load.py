"""A pod that sends requests to jobs over HTTP, and what its clients have learned in the end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e.kube import TOOLS, Kube, until
from tests.support.jobs.histories import Operation, Outcome

PROGRAM = TOOLS / "load.py"
POD = "load"
TAKEN = 200
CLIENTS = 4


@dataclass(frozen=True)
class Ended:
    """A request that was answered for good."""

    job: int
    """Which of the jobs it went to."""
    statuses: Sequence[int]
    """Of every try; 0 where none came back."""
    reasons: Sequence[str]
    operation: Operation


class Load:
    """Clients in a pod of their own."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def ended(self) -> list[Ended]:
        """The requests that were answered until now."""
        lines = self._kube.kubectl("logs", POD, "--tail=-1").splitlines()
        return [_ended(json.loads(line)) for line in lines]

    def await_more(self, jobs: int) -> None:
        """Wait until each job has answered a request that was sent to it after this was called."""
        before = len(self.ended())

        def again() -> bool:
            # What was on its way when this was called has ended before what came after it.
            answered = [each.job for each in self.ended()[before:]]
            return all(answered.count(job) > 2 * CLIENTS for job in range(jobs))

        until(again, "each job answers again")

    def stop(self) -> list[Ended]:
        """Let no more be sent; all requests with what became of them."""
        self._kube.python(POD, "open('/tmp/stop', 'w')")
        until(lambda: self._phase() == "Succeeded", "what was sent is answered")
        return self.ended()

    def _phase(self) -> str:
        return str(self._kube.get("pod", POD)["status"]["phase"])


@contextlib.contextmanager
def sending(kube: Kube, image: str, urls: Sequence[str], token: str, ca: str) -> Iterator[Load]:
    """While the block runs, clients in a pod send requests to these addresses in turn."""
    work = {"urls": urls, "token": token, "ca": ca, "clients": CLIENTS, "pause_s": 0.1}
    kube.apply(_pod(image, json.dumps(work)))
    try:
        kube.wait(f"pod/{POD}", "Ready")
        yield Load(kube)
    finally:
        kube.kubectl("delete", "pod", POD, "--grace-period=0", "--force")


def _pod(image: str, work: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": pod_rights(),
            "containers": [
                {
                    "name": POD,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python", "-c", PROGRAM.read_text("utf-8"), work],
                    "securityContext": container_rights(),
                }
            ],
        },
    }


def pod_rights() -> dict[str, Any]:
    """Of a pod beside the workers, with their user, under the restricted Pod Security standard."""
    return {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_rights() -> dict[str, Any]:
    """Of its container."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _ended(line: dict[str, Any]) -> Ended:
    segments, taken = line["segments"], line["statuses"][-1] == TAKEN
    wanted = {} if "sum" in line["errors"] else {"sum": sum(segments)}
    operation = Operation(
        line["request"],
        segments,
        Outcome.OK if taken else Outcome.FAIL,
        line["values"],
        wanted,
        durable=taken,
    )
    return Ended(line["job"], line["statuses"], line["reasons"], operation)
