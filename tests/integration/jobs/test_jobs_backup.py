"""A cluster that has lost its log goes on from a backup: real workers, killed, over ZooKeeper and
over a log in a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.counting import (
    await_rows,
    counting_job,
    counting_module,
    counts,
    counts_of,
    numbers,
    numbers_of,
    rows,
)
from tests.support.log.logs import served
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import onyx

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
PEERS, SEGMENTS = 6, 8_000


@pytest.fixture(params=["zookeeper", "folder"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    """Opens a cluster without a log behind it, each time another one, over the same state."""
    modules = counting_module(tmp_path)
    with ExitStack() as stack:

        def open_cluster() -> Cluster:
            where: Any = tmp_path / f"log-{time.monotonic_ns()}"
            if request.param == "folder":
                where.mkdir()
                stack.enter_context(served(where))
            else:
                server: ZooKeeperServer = request.getfixturevalue("zookeeper")
                where = server.address
            return Cluster(where, tmp_path, modules)

        yield open_cluster


def test_windows_keyed_state_and_files_are_exact_when_a_lost_log_is_restored(
    opened: Callable[[], Cluster], tmp_path: Path
) -> None:
    to, out = tmp_path / "backups", tmp_path / "out"
    with opened() as lost:
        (worker,) = lost.start_workers(1, PEERS)
        id = lost.submit(counting_job(out, segments=SEGMENTS, ratePerSecond=1_000))
        lost.await_ready(id)
        await_rows(lost, out / "numbers", 1_000)
        made = onyx(lost.settings, "backup", "--to", to)
        assert made.returncode == 0, made.stderr
        await_rows(lost, out / "numbers", len(rows(out / "numbers")) + 2_000)
        worker.kill()
    with opened() as restored:
        refused = onyx(restored.settings, "restore", to)
        assert refused.returncode == 2, "what was written later must not go without a word"
        assert "--discard-later" in refused.stderr
        found = onyx(restored.settings, "restore", to, "--discard-later")
        assert found.returncode == 0, found.stderr
        assert len(rows(out / "numbers")) < SEGMENTS
        restored.start_workers(1, PEERS)
        restored.await_completed(id)
        again = onyx(restored.settings, "restore", to, "--discard-later")
        assert again.returncode == 2
        assert "is not empty" in again.stderr
    assert numbers(out) == numbers_of(SEGMENTS), "each row once, as if nothing had been"
    assert counts(out) == counts_of(SEGMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("opened", ["folder"], indirect=True)
def test_a_job_on_spark_goes_on_from_the_last_micro_batch_of_a_backup(
    opened: Callable[[], Cluster], tmp_path: Path
) -> None:
    to, out = tmp_path / "backups", tmp_path / "out"
    manifest = counting_job(out, ratePerSecond=300)
    spark = {"master": "local[1]", "sparkConf": {"spark.sql.shuffle.partitions": "2"}}
    manifest["spec"] |= {"engine": "spark", "spark": spark}
    with opened() as lost:
        (worker,) = lost.start_workers(1, peers=2)
        id = lost.submit(manifest)
        await_rows(lost, out / "numbers", 600)
        made = onyx(lost.settings, "backup", "--to", to)
        assert made.returncode == 0, made.stderr
        await_rows(lost, out / "numbers", len(rows(out / "numbers")) + 600)
        worker.kill()
    with opened() as restored:
        found = onyx(restored.settings, "restore", to, "--discard-later")
        assert found.returncode == 0, found.stderr
        left = len(rows(out / "numbers"))
        restored.start_workers(1, peers=2)
        restored.await_ready(id)
        await_rows(restored, out / "numbers", left + 1_200)
        restored.workers[0].kill()
    written = numbers(out)
    assert written == numbers_of(written.total()), "each once, and none is missing"
