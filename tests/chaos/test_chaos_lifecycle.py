"""Jobs that are suspended, resumed and drained by hand while real processes work on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.jobs.chaos_files import ChaosFiles
from tests.support.servers.cluster import Cluster

from onyx.client.statuses import JobState
from onyx.ids import JobId, TaskName

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]


def state(cluster: Cluster, job: JobId) -> JobState:
    return cluster.client.status(job).state


def test_a_suspended_job_frees_its_peers_for_another_and_completes_when_it_is_resumed(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    files = ChaosFiles(tmp_path / "one", files=3, records=6_000)
    others = ChaosFiles(tmp_path / "other", files=2, records=1_000)
    with make_cluster() as cluster:
        cluster.start_workers(2, peers=3)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(2_000)
        files.await_some()
        cluster.client.suspend(job)
        cluster.client.suspend(job)
        cluster.until(lambda replica: not replica.run(job).allocation, "the job has no peers")
        assert state(cluster, job) == "suspended"

        other = cluster.submit(others.manifest(gated=False))
        cluster.await_completed(other)
        assert state(cluster, job) == "suspended"

        cluster.client.resume(job)
        cluster.await_ready(job)
        assert state(cluster, job) == "running"
        files.open_gate()
        cluster.await_completed(job)
    files.check_complete()
    others.check_complete()


@pytest.mark.slow
@pytest.mark.parametrize(
    "dies",
    [
        pytest.param(False, id="nobody-dies", marks=pytest.mark.slow),
        pytest.param(True, id="an-input-dies"),
    ],
)
def test_a_drained_job_completes_with_a_part_of_its_input_and_no_hole_in_it(
    make_cluster: MakeCluster, tmp_path: Path, dies: bool
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=40_000)
    with make_cluster() as cluster:
        cluster.start_workers(3, peers=3)
        job = cluster.submit(files.manifest(pause_s=0.05))
        cluster.await_ready(job)
        files.open_gate()
        files.await_some()
        (peer, *_) = cluster.replica.run(job).allocation[TaskName("read")]
        cluster.client.drain(job)
        if dies:
            cluster.worker_of(peer).kill()
        cluster.await_completed(job)

    written = {name: {key for key, _ in files.written(name)} for name in files.expected}
    read = {path for path, _ in written["even"]}
    assert read
    for path in read:
        end = 1 + max(n for name in written for each, n in written[name] if each == path)
        assert end < 40_000
        for name, expected in files.expected.items():
            wanted = {key for key in expected if key[0] == path and key[1] < end}
            assert {key for key in written[name] if key[0] == path} == wanted, name
