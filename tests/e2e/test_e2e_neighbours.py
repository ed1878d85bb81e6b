"""Jobs that do no harm to their neighbours: one with a segment that no worker has the memory for,
one that wants more than a job may have, one that comes when others run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.kube import until
from tests.e2e.release import Release, Squares, conditions
from tests.e2e.squares import HUNGRY

VALUES = ("--set", "cluster.resources.limits.memory=640Mi")
"""So little that it is soon taken."""
PEERS = 8
"""Of two workers."""
SEGMENTS = 300


def test_a_segment_that_needs_too_much_memory_is_poison_and_its_neighbours_go_on(
    release: Release,
) -> None:
    kube = release.kube
    innocent = release.start_squares("innocent", per_second=100)
    innocent.await_some()
    seen: set[str] = set()

    kube.apply(hungry())

    def is_over() -> bool:
        seen.update(reasons(release, "innocent"))
        return kube.phase("hungry") in ("Completed", "Failed")

    until(is_over, "the hungry job is over")
    release.await_completed("hungry")
    (letter,) = release.rows("hungry/letters")
    assert (letter["segment"]["n"], letter["error"]["type"]) == (HUNGRY, "PoisonSegment")
    assert {row["n"] for row in release.rows("hungry/out")} == {*range(SEGMENTS)} - {HUNGRY}
    (stable,) = conditions(kube.get("oc", "onyx"), "Stable")
    assert (stable["status"], stable["reason"]) == ("False", "OutOfMemory"), stable
    assert "of task square of job" in stable["message"]
    innocent.assert_goes_on()
    innocent.stop_and_assert_whole()
    seen.update(reasons(release, "innocent"))
    assert "OutOfMemory" not in seen | events(release, "innocent")


def hungry() -> dict[str, Any]:
    """A job whose one segment takes all memory, and what becomes of it."""
    numbers = {"segments": SEGMENTS, "ratePerSecond": 100, "partitions": 2}
    files = {
        each: {"path": f"hungry/{each}", "format": "jsonl", "rollSeconds": 1}
        for each in ("out", "letters")
    }
    catalog = [
        {"name": "numbers", "type": "input", "plugin": "generator", "options": numbers},
        {"name": "square", "type": "function", "fn": "squares:hungry_square",
         "deadLetter": "letters"},
        *({"name": name, "type": "output", "plugin": "files", "options": options}
          for name, options in files.items()),
    ]  # fmt: skip
    return declared("hungry", [["numbers", "square"], ["square", "out"]], catalog)


def declared(name: str, workflow: list[list[str]], catalog: list[Any], **more: Any) -> Any:
    limits = {"batchSize": 20, "maxPeers": 1}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": name},
        "spec": {"workflow": workflow, "catalog": [each | limits for each in catalog], **more},
    }


def reasons(release: Release, job: str) -> set[str]:
    status = release.kube.get("oj", job).get("status", {})
    return {status.get("reason", ""), *(each["reason"] for each in status.get("conditions", []))}


def events(release: Release, job: str) -> set[str]:
    """The reasons of all events of a job."""
    found = release.kube.list("events")
    return {each["reason"] for each in found if each["involvedObject"]["name"] == job}


# --- peers ---------------------------------------------------------------------------------------


@pytest.fixture
def quotas(release: Release) -> Iterator[None]:
    """A job may have half of the peers, and a priority of 5."""
    patch(release, {"peersPerJob": PEERS // 2, "priority": 5})
    yield
    patch(release, None)


def patch(release: Release, quotas: dict[str, int] | None) -> None:
    change = json.dumps({"spec": {"quotas": quotas}})
    release.kube.kubectl("patch", "oc/onyx", "--type=merge", "--patch", change)


@pytest.mark.parametrize(
    ("key", "least", "priority"),
    [("spec.catalog[0].minPeers", 2, 0), ("spec.priority", 1, 6)],
    ids=["peers", "priority"],
)
def test_a_job_over_the_quota_waits_until_it_may_have_so_much(
    release: Release, quotas: None, key: str, least: int, priority: int
) -> None:
    name = f"over-{priority}"
    job = needing(release, name, 100, least, priority)
    release.kube.apply(job)

    until(lambda: release.kube.phase(name) == "Pending", "it is not submitted")
    status = release.kube.get("oj", name)["status"]
    assert (status["reason"], key in status["message"]) == ("ClusterUnfit", True), status

    patch(release, None)
    release.await_completed(name)


def test_a_job_that_comes_takes_no_peers_of_one_that_runs_but_by_priority(
    release: Release,
) -> None:
    kube, running = release.kube, Squares(release, "running", 4_000)
    kube.apply(needing(release, "running", 4_000, least=2))
    running.await_some()

    kube.apply(needing(release, "later", 1_000))
    until(lambda: waits(release, "later"), "the one that came later waits")
    running.assert_goes_on()
    assert waits(release, "later")

    kube.apply(needing(release, "urgent", 1_000, priority=1))
    until(lambda: kube.phase("urgent") == "Running", "the urgent one runs")
    assert "Displaced" in reasons(release, "running")

    Squares(release, "urgent", 1_000).assert_whole()
    Squares(release, "later", 1_000).assert_whole()
    running.assert_whole()


def needing(
    release: Release, name: str, segments: int, least: int = 1, priority: int = 0
) -> dict[str, Any]:
    """Squares by three tasks that need so many peers each."""
    made = Squares(release, name, segments).manifest(per_second=200)
    made["spec"]["priority"] = priority
    for each in made["spec"]["catalog"]:
        each["minPeers"] = least
    return made


def waits(release: Release, job: str) -> bool:
    return "WaitingForPeers" in reasons(release, job)
