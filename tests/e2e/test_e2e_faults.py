"""Faults while a job runs: it completes, and nothing is lost, which is checked in the data.

The job writes numbers and their squares at a fixed rate. It goes on for as long as the fault takes
and is then drained, or it has an end, and the test makes sure that its fault came before that.
"""

from __future__ import annotations

from typing import Any

from tests.e2e.kube import until
from tests.e2e.packets import lost, node
from tests.e2e.release import WORKERS, Release, conditions

ZOOKEEPER_PORT = 2181


def test_the_cluster_is_scaled_up_and_down_while_a_job_runs(release: Release) -> None:
    squares = release.start_squares("scaled", per_second=200)
    squares.await_some()

    release.kube.kubectl("scale", "oc/onyx", "--replicas=4")
    release.await_ready(workers=4)
    squares.assert_goes_on()
    release.kube.kubectl("scale", "oc/onyx", "--replicas=2")
    release.await_ready(workers=2)

    squares.assert_goes_on()
    squares.stop_and_assert_whole()


def test_a_worker_that_is_lost_is_replaced_while_a_job_runs(release: Release) -> None:
    squares = release.start_squares("lost-worker", segments=9_000, per_second=200)
    squares.await_some()
    before = uid(release, release.worker(1))

    release.kube.delete_at_once("pod", release.worker(1))

    squares.assert_unfinished()
    squares.assert_whole()
    release.await_ready()
    assert uid(release, release.worker(1)) != before


def test_a_submission_survives_the_loss_of_the_operator(release: Release) -> None:
    squares = release.start_squares("submitted", segments=2_000, per_second=200)
    for pod in release.kube.list("pods", "app.kubernetes.io/component=operator"):
        release.kube.delete_at_once("pod", pod["metadata"]["name"])

    squares.assert_whole()
    assert len(jobs_named(release, squares.name)) == 1, "submitted once"


def test_without_an_operator_a_job_survives_the_loss_of_a_worker(release: Release) -> None:
    squares = release.start_squares("unattended", segments=9_000, per_second=200)
    release.scale_operator(0)
    squares.await_some()

    release.kube.delete_at_once("pod", release.worker(1))

    squares.assert_unfinished()
    until(lambda: states(release, squares.name) == ["completed"], "the log says completed")
    assert release.kube.phase(squares.name) != "Completed", "nobody was there to say so"
    release.scale_operator(1)
    squares.assert_whole()


def test_zookeeper_is_lost_and_comes_back_while_a_job_runs(release: Release) -> None:
    squares = release.start_squares("lost-zookeeper", per_second=200)
    squares.await_some()

    server = release.zookeeper()
    before = uid(release, server)
    release.kube.delete_at_once("pod", server)
    until(lambda: uid(release, server) != before, "ZooKeeper comes back")

    squares.assert_goes_on()
    squares.stop_and_assert_whole()
    restarts = [
        each["restartCount"]
        for pod in release.kube.list("pods", WORKERS)
        for each in pod["status"]["containerStatuses"]
    ]
    assert restarts == [0, 0], "workers wait for ZooKeeper, they do not end"


def test_a_worker_whose_packets_to_zookeeper_are_lost_says_so_and_comes_back(
    release: Release,
) -> None:
    place = node()
    squares = release.start_squares("lost-packets", per_second=200)
    squares.await_some()
    victim = release.worker(1)

    with lost(place, release.kube.get("pod", victim)["status"]["podIP"], ZOOKEEPER_PORT):
        until(lambda: not is_ready(release, victim), "the worker is not ready")
        until(lambda: "packets are lost" in log_of(release, victim), "its log says why")
        squares.assert_goes_on()

    until(lambda: is_ready(release, victim), "the worker is ready again")
    release.await_ready()
    squares.assert_goes_on()
    squares.stop_and_assert_whole()


def is_ready(release: Release, pod: str) -> bool:
    return [each["status"] for each in conditions(release.kube.get("pod", pod), "Ready")] == [
        "True"
    ]


def log_of(release: Release, pod: str) -> str:
    return release.kube.kubectl("logs", pod, "--tail=-1")


def uid(release: Release, pod: str) -> str:
    return str(release.kube.get("pod", pod)["metadata"]["uid"])


def jobs_named(release: Release, name: str) -> list[Any]:
    return [each for each in release.jobs_by_log() if each["name"] == name]


def states(release: Release, name: str) -> list[str]:
    return [str(each["state"]) for each in jobs_named(release, name)]
