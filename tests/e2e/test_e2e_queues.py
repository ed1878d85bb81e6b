"""A queue as the input of a job: each message is in the output once, though a worker, and then the
queue itself, are lost. NATS runs in a pod, from the program that `make queues` builds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.e2e.kube import until
from tests.e2e.programs import give, serve
from tests.e2e.release import Release
from tests.support.servers import queue_programs

QUEUE = "queue"
PORT = 4222
MESSAGES = 1_000
"""Of each of the three times that some are sent."""
ARGUMENTS = ("--jetstream", "--store_dir", "/data/queue", "--port", str(PORT))


def test_each_message_is_there_once_though_a_worker_and_the_queue_are_lost(
    release: Release,
) -> None:
    program = queue_programs.nats()
    if program is None:
        pytest.skip("NATS has not been built: make queues")
    kube = release.kube
    give(release, program)
    serve(kube, QUEUE, program, PORT, ARGUMENTS)
    send(release, 0)
    kube.apply(JOB)
    until(lambda: numbers(release), "something is written")

    kube.delete_at_once("pod", release.worker(1))
    send(release, 1)
    until(lambda: len(numbers(release)) >= 2 * MESSAGES, "what was sent then is written")
    kube.delete_at_once("pod", QUEUE)
    serve(kube, QUEUE, program, PORT, ARGUMENTS)
    send(release, 2)

    until(lambda: len(numbers(release)) >= 3 * MESSAGES, "what was sent at last is written")
    assert numbers(release) == Counter(range(3 * MESSAGES))
    assert kube.phase(JOB["metadata"]["name"]) == "Running"
    release.await_ready()


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
