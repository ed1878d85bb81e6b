"""A worker that is stopped beyond its session and goes on: what it still does has no effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.chaos_files import ChaosFiles
from tests.support.cluster import Cluster, Worker

from onyx.ids import GroupId, JobId, TaskName

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]


def stop_worker_of(cluster: Cluster, job: JobId, task: str) -> tuple[Worker, GroupId]:
    """Stop the process that has the first peer of a task, until it is declared dead."""
    peer = cluster.replica.allocations[job][TaskName(task)][0]
    worker = cluster.worker_of(peer)
    group = cluster.group_of(worker)
    worker.stop()
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
        if entry.command.args["id"] == group and entry.writer != group
    ][:1]
    later = [entry for entry in cluster.entries_by(group) if entry.position > leave.position]
    return [entry.command.fn for entry in later]


@pytest.mark.parametrize("task", ["even", "read"])
def test_a_zombie_writes_nothing_and_comes_back_as_another(
    make_cluster: MakeCluster, tmp_path: Path, task: str
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=10_000)
    with make_cluster() as cluster:
        cluster.start_workers(3, peers=6)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(6_000)
        files.await_some()

        zombie, old = stop_worker_of(cluster, job, task)
        files.await_reflected(6_000)
        before = files.visible()
        zombie.resume()
        await_new_incarnation(cluster, zombie, old)
        cluster.await_ready(job)

        assert files.parts_by(old).items() <= before.items()
        assert appended_after_leave(cluster, old) == []
        files.open_gate()
        cluster.await_completed(job)
        assert files.parts_by(old).items() <= before.items()
        assert appended_after_leave(cluster, old) == []

    files.check_complete()


def test_a_zombie_changes_nothing_of_a_job_that_others_have_finished(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=6_000)
    with make_cluster() as cluster:
        cluster.start_workers(2, peers=6)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(3_000)
        files.await_some()

        zombie, old = stop_worker_of(cluster, job, "odd")
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
