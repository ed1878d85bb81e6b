"""At-most-once: whatever dies, no record is written twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.jobs.chaos_files import OUTPUTS, ChaosFiles
from tests.support.servers.cluster import Cluster

from onyx.ids import TaskName

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]


@pytest.mark.slow
def test_without_faults_every_record_is_written_once(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=3_000)
    with make_cluster() as cluster:
        cluster.start_workers(2, peers=4)
        job = cluster.submit(files.manifest("at-most-once", gated=False))
        cluster.await_completed(job)

    files.check_complete()
    assert files.repeats() == 0


@pytest.mark.slow
@pytest.mark.parametrize("task", ["read", pytest.param("even", marks=pytest.mark.slow)])
def test_a_kill_loses_records_but_repeats_none(
    make_cluster: MakeCluster, tmp_path: Path, task: str
) -> None:
    files = ChaosFiles(tmp_path, files=8, records=3_000)
    with make_cluster() as cluster:
        cluster.start_workers(3, peers=4)
        job = cluster.submit(files.manifest("at-most-once", gated=False, pause_s=0.05))
        cluster.await_ready(job)
        files.await_some()

        cluster.worker_of(cluster.replica.run(job).allocation[TaskName(task)][0]).kill()
        cluster.await_completed(job)

    assert files.repeats() == 0
    for name in OUTPUTS:
        assert dict(files.written(name).keys()).items() <= files.expected[name].items()
