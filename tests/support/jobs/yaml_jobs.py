"""Jobs as a user writes them, for the integration tests: YAML text in, segments out."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from tests.support.patience import WAIT_S

from onyx.plugins.channel import Channel, open_channel
from onyx.replica.state import Replica
from onyx.testing import TestEnv

FUNCTIONS = "tests.support.jobs.job_functions"
_numbers = itertools.count()


def manifest(spec: str, name: str = "job", **metadata: Any) -> dict[str, Any]:
    """An OnyxJob whose `spec` is given as YAML; `f:` stands for the module of test functions.
    `metadata` is that of the job itself (`jobId`)."""
    parsed = yaml.safe_load(spec.replace("f:", f"{FUNCTIONS}:"))
    if metadata:
        parsed["metadata"] = metadata
    return job_of(name, parsed)


def job_of(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """An OnyxJob of a `spec`."""
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": name},
        "spec": dict(spec),
    }


def channel() -> Channel:
    """A new channel of its own name."""
    return open_channel(f"channel-{next(_numbers)}")


def taken(channel: Channel) -> list[dict[str, Any]]:
    """All that a job has written to a channel."""
    found: list[dict[str, Any]] = []
    while more := channel.take():
        found += more
    return found


def until(env: TestEnv, condition: Callable[[Replica], bool]) -> Replica:
    """Follow the log until its replica, from now on, is as wanted."""
    now = env.client.replica().version
    replicas: queue.SimpleQueue[Replica] = queue.SimpleQueue()
    with env.client.follow(lambda _, replica: replicas.put(replica)):
        while True:
            replica = replicas.get(timeout=WAIT_S)
            if replica.version >= now and condition(replica):
                return replica
