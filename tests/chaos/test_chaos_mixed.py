"""One job with an input that is accounted for and one that is not: a kill loses nothing of the one,
and repeats nothing of the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.chaos_files import OUTPUTS, ChaosFiles
from tests.support.servers.cluster import Cluster

from onyx.ids import TaskName

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]
FILES = 8


def manifest(files: ChaosFiles, folder: Path, **more: Any) -> dict[str, Any]:
    """Half of the files are read by an input of which nobody accounts for anything."""
    job = files.manifest("at-least-once", gated=False, **more)
    read = job["spec"]["catalog"][0]
    paths = [str(folder / "in" / f"{number}.txt") for number in range(FILES)]
    fast = {**read, "name": "fast", "guarantee": "at-most-once"}
    fast["options"] = {**read["options"], "path": paths[1::2]}
    read["options"] = {**read["options"], "path": paths[::2]}
    job["spec"]["catalog"].append(fast)
    job["spec"]["workflow"].append(["fast", "parse"])
    return job


def is_fast(key: tuple[str, int]) -> bool:
    return int(Path(key[0]).stem) % 2 == 1


@pytest.mark.slow
def test_without_faults_every_record_is_written_once(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=FILES, records=2_000)
    with make_cluster() as cluster:
        cluster.start_workers(2, peers=5)
        cluster.await_completed(cluster.submit(manifest(files, tmp_path)))

    files.check_complete()
    assert files.repeats() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    ["read", *(pytest.param(each, marks=pytest.mark.slow) for each in ("fast", "parse", "even"))],
)
def test_a_kill_loses_nothing_of_one_input_and_repeats_nothing_of_the_other(
    make_cluster: MakeCluster, tmp_path: Path, task: str
) -> None:
    files = ChaosFiles(tmp_path, files=FILES, records=3_000)
    with make_cluster() as cluster:
        cluster.start_workers(3, peers=5)
        job = cluster.submit(manifest(files, tmp_path, pause_s=0.05))
        cluster.await_ready(job)
        files.await_some()

        cluster.worker_of(cluster.replica.run(job).allocation[TaskName(task)][0]).kill()
        cluster.await_completed(job)

    for name in OUTPUTS:
        written = files.written(name)
        wanted = files.expected[name]
        found = dict(written.keys())
        assert found.items() <= wanted.items()
        assert {key for key in wanted if not is_fast(key)} <= found.keys()
        assert not [key for (key, _), count in written.items() if is_fast(key) and count > 1]
