"""A worker that is stopped beyond its session and goes on: what it still does has no effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.jobs.chaos_files import ChaosFiles, wait_until
from tests.support.servers.cluster import Cluster, Worker

from onyx.ids import GroupId, JobId, TaskName

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]


def stop_while_writing(
    cluster: Cluster, files: ChaosFiles, job: JobId, task: str
) -> tuple[Worker, GroupId]:
    """Stop the process of a peer of an output while it has an unfinished part, until it is declared
    dead. When that is so, others have taken the part away."""
    worker = cluster.worker_of(cluster.replica.run(job).allocation[TaskName(task)][0])
    group = cluster.group_of(worker)

    def caught() -> bool:
        worker.stop()
        if files.unfinished_parts_of(group, task):
            return True
        worker.resume()
        return False

    wait_until(caught, f"{worker.tag} is stopped with an unfinished part of {task}")
    cluster.await_gone([group])
    return worker, group


def await_new_incarnation(cluster: Cluster, worker: Worker, old: GroupId) -> None:
    cluster.await_members([worker], peers=6)
    assert cluster.group_of(worker) != old


def appended_after_leave(cluster: Cluster, group: GroupId) -> list[str]:
    """Commands that an incarnation wrote behind the entry that removed it."""
    (leave,) = [
        entry
        for entry in cluster.entries_named("group-leave-cluster")
        if entry.command.id == group and entry.writer != group
    ][:1]
    later = [entry for entry in cluster.entries_by(group) if entry.position > leave.position]
    return [entry.command.NAME for entry in later]


@pytest.mark.parametrize("task", ["even", pytest.param("round", marks=pytest.mark.slow)])
def test_a_zombie_writes_nothing_and_comes_back_as_another(
    make_cluster: MakeCluster, tmp_path: Path, task: str
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=10_000)
    with make_cluster() as cluster:
        cluster.start_workers(3, peers=6)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(6_000)

        zombie, old = stop_while_writing(cluster, files, job, task)
        files.await_reflected(6_000)
        assert files.unfinished_parts_of(old, task) == []
        before = files.parts_by(old)
        zombie.resume()
        await_new_incarnation(cluster, zombie, old)
        cluster.await_ready(job)

        files.open_gate()
        cluster.await_completed(job)
        assert files.parts_by(old) == before
        assert appended_after_leave(cluster, old) == []

    files.check_complete()


@pytest.mark.slow
def test_a_zombie_changes_nothing_of_a_job_that_others_have_finished(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=6_000)
    with make_cluster() as cluster:
        cluster.start_workers(2, peers=6)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(3_000)

        zombie, old = stop_while_writing(cluster, files, job, "odd")
        files.open_gate()
        cluster.await_completed(job)
        before = files.visible()
        zombie.resume()
        await_new_incarnation(cluster, zombie, old)
        zombie.terminate()

        assert zombie.wait() == 0
        assert files.visible() == before
        assert appended_after_leave(cluster, old) == []

    files.check_complete()
