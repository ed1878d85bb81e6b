"""kill -9 of worker processes while a job runs: the job completes and reflects every record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.jobs.chaos_files import ChaosFiles
from tests.support.servers.cluster import Cluster, Worker

from onyx.ids import JobId, TaskName
from onyx.replica.state import Replica

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]


def workers_with(cluster: Cluster, job: JobId, task: str) -> list[Worker]:
    """The processes that have peers of a task."""
    return [cluster.worker_of(peer) for peer in cluster.replica.run(job).allocation[TaskName(task)]]


def with_input(cluster: Cluster, job: JobId) -> Worker:
    return workers_with(cluster, job, "read")[0]


def with_output(cluster: Cluster, job: JobId) -> Worker:
    return workers_with(cluster, job, "even")[0]


def with_acker(cluster: Cluster, job: JobId) -> Worker:
    return cluster.worker_of(cluster.replica.run(job).ackers[0])


def without_input(cluster: Cluster, job: JobId) -> Worker:
    """Every input survives, and has to replay at once what this one had."""
    peers = [peer for task in cluster.replica.run(job).allocation.values() for peer in task]
    reading = workers_with(cluster, job, "read")
    return next(each for each in map(cluster.worker_of, peers) if each not in reading)


def test_a_job_survives_kills_of_workers_with_input_acker_and_output(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=6, records=34_000)
    with make_cluster() as cluster:
        workers = cluster.start_workers(3, peers=6)
        job = cluster.submit(files.manifest())
        released = 0
        for victim in (with_input, with_acker, with_output, without_input):
            cluster.await_ready(job)
            released += 5_000
            files.open_gate(released)
            files.await_some()
            kill_and_replace(cluster, victim(cluster, job), workers)
            files.await_reflected(released)

        files.open_gate()
        cluster.await_completed(job)

    files.check_complete()


def kill_and_replace(cluster: Cluster, worker: Worker, workers: list[Worker]) -> None:
    dead = cluster.group_of(worker)
    worker.kill()
    cluster.await_gone([dead])
    workers[workers.index(worker)] = cluster.start_workers(1, peers=6)[0]


@pytest.mark.slow
def test_a_job_survives_while_one_process_remains(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=6, records=10_000)
    with make_cluster() as cluster:
        *victims, last = cluster.start_workers(3, peers=6)
        job = cluster.submit(files.manifest())
        for released, worker in enumerate(victims, 1):
            cluster.await_ready(job)
            files.open_gate(released * 3_000)
            files.await_some()
            worker.kill()

        files.await_reflected(6_000)
        assert [cluster.worker_in(group) for group in cluster.replica.groups] == [last]
        files.open_gate()
        cluster.await_completed(job)

    files.check_complete()


@pytest.mark.slow
def test_workers_are_killed_again_before_the_job_has_recovered(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Each kill follows at once upon the new allocation that the last one brought about."""
    files = ChaosFiles(tmp_path, files=4, records=10_000)
    with make_cluster() as cluster:
        workers = cluster.start_workers(4, peers=6)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(6_000)
        files.await_some()

        for worker in workers[:3]:
            group = cluster.group_of(worker)
            worker.kill()
            cluster.await_gone([group])

        files.await_reflected(6_000)
        files.open_gate()
        cluster.await_completed(job)

    files.check_complete()


@pytest.mark.slow
def test_two_consecutive_members_of_the_ring_die_at_once(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=10_000)
    with make_cluster() as cluster:
        cluster.start_workers(4, peers=3)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(5_000)
        files.await_some()

        first = cluster.replica.groups[0]
        second = cluster.replica.pairs[first]
        for worker in [cluster.worker_in(group) for group in (first, second)]:
            worker.kill()
        cluster.await_gone([first, second])

        assert_ring_of_living(cluster.replica)
        files.await_reflected(5_000)
        files.open_gate()
        cluster.await_completed(job)

    files.check_complete()


def assert_ring_of_living(replica: Replica) -> None:
    """`pairs` is one cycle through all groups."""
    assert set(replica.pairs) == set(replica.groups)
    ring = [replica.groups[0]]
    while (following := replica.pairs[ring[-1]]) != ring[0]:
        ring.append(following)
        assert len(ring) <= len(replica.groups)
    assert set(ring) == set(replica.groups)


@pytest.mark.slow
def test_all_workers_are_killed_at_once_and_started_again(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=10_000)
    with make_cluster() as cluster:
        workers = cluster.start_workers(3, peers=3)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(5_000)
        files.await_some()

        dead = list(cluster.replica.groups)
        for worker in workers:
            worker.kill()
        cluster.start_workers(3, peers=3)
        cluster.await_gone(dead)

        assert_ring_of_living(cluster.replica)
        files.await_reflected(5_000)
        files.open_gate()
        cluster.await_completed(job)

    files.check_complete()
