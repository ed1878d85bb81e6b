"""A queue as the input of a job: each message is in the output once, though a worker, and then the
queue itself, are lost. NATS runs in a pod, from the program that `make queues` builds."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kube import Kube, image, until
from tests.e2e.load import container_rights, pod_rights
from tests.e2e.release import NAME, Release
from tests.support.servers import queue_programs

QUEUE = "queue"
PORT = 4222
MESSAGES = 1_000
"""Of each of the three times that some are sent."""
PROGRAM = "/data/nats-server"
_WRITE = f"""
import base64, os, sys
with open("{PROGRAM}", "wb") as program:
    program.write(base64.b64decode(sys.stdin.buffer.read()))
os.chmod("{PROGRAM}", 0o755)
"""


def test_each_message_is_there_once_though_a_worker_and_the_queue_are_lost(
    release: Release,
) -> None:
    program = queue_programs.nats()
    if program is None:
        pytest.skip("NATS has not been built: make queues")
    kube = release.kube
    give(release, program)
    serve(kube)
    send(release, 0)
    kube.apply(JOB)
    until(lambda: numbers(release), "something is written")

    kube.delete_at_once("pod", release.worker(1))
    send(release, 1)
    until(lambda: len(numbers(release)) >= 2 * MESSAGES, "what was sent then is written")
    kube.delete_at_once("pod", QUEUE)
    serve(kube)
    send(release, 2)

    until(lambda: len(numbers(release)) >= 3 * MESSAGES, "what was sent at last is written")
    assert numbers(release) == Counter(range(3 * MESSAGES))
    assert kube.phase(JOB["metadata"]["name"]) == "Running"
    release.await_ready()


def give(release: Release, program: Path) -> None:
    """Write the program to the volume of the workers."""
    text = base64.b64encode(program.read_bytes()).decode()
    command = ("exec", "--stdin", release.worker(), "--", "python", "-c", _WRITE)
    release.kube.kubectl(*command, given=text)


def serve(kube: Kube) -> None:
    """A pod that keeps what it has on that volume, and its name."""
    claim = {"claimName": f"{NAME}-data"}
    container = {
        "name": QUEUE,
        "image": image("WORKER_IMAGE"),
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM, "--jetstream", "--store_dir", "/data/queue", "--port", str(PORT)],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "securityContext": container_rights(),
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volume = {"name": "data", "persistentVolumeClaim": claim}
    spec = {"securityContext": pod_rights(), "containers": [container], "volumes": [volume]}
    metadata = {"name": QUEUE, "labels": {"app": QUEUE}}
    service = {"selector": {"app": QUEUE}, "ports": [{"port": PORT}]}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    kube.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    kube.wait(f"pod/{QUEUE}", "Ready")


def send(release: Release, time: int) -> None:
    """Send the numbers of that time, by a program in a worker's pod. What was sent already when it
    is begun anew is known to the queue."""
    sent = (f"{QUEUE}:{PORT}", str(time * MESSAGES), str(MESSAGES))
    # The name of a Service leads to a new pod a moment after that is ready.
    until(
        lambda: not release.kube.tool(release.worker(), "send_numbers", *sent),
        "the numbers are sent",
    )


def numbers(release: Release) -> Counter[int]:
    """The numbers that are written, and how often."""
    return Counter(row["n"] for row in release.rows("queued"))


JOB: dict[str, Any] = {
    "apiVersion": "onyx.dev/v1beta1",
    "kind": "OnyxJob",
    "metadata": {"name": "queued"},
    "spec": {
        "guarantee": "exactly-once",
        "workflow": [["read", "square"], ["square", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "nats",
             "options": {"servers": f"{QUEUE}:{PORT}", "stream": "NUMBERS"}},
            {"name": "square", "type": "function", "fn": "squares:square", "maxPeers": 2},
            {"name": "write", "type": "output", "plugin": "files", "maxPeers": 2,
             "options": {"path": "queued", "format": "jsonl", "rollSeconds": 1}},
        ],
    },
}  # fmt: skip
