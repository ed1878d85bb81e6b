"""A cluster that has lost its log goes on from a backup: real workers, killed, over ZooKeeper and
over a log in a folder."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import job_of
from tests.support.log.logs import served
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import onyx

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
PEERS, WIDTH, GROUPS, SEGMENTS = 6, 500, 4, 8_000
STEPS = f"""
def make(n):
    return {{"n": n, "group": n % {GROUPS}, "time": n}}


def number(segment, state):
    state.seen = (state.seen or 0) + 1
    return {{"n": segment["n"], "seen": state.seen}}


def counted(event, window, trigger, state_event, state):
    return {{"group": state_event["group_key"], "from": state_event["lower_bound"], "count": state}}
"""
PATH = "out"


def job(folder: Path) -> dict[str, Any]:
    """Windows and keyed state, each segment once, into files."""
    write = {"type": "output", "plugin": "files", "batchSize": 100}
    return job_of("counting", {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["read", "number"], ["count", "counts"],
                     ["number", "numbers"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "generator", "batchSize": 50, "maxPeers": 1,
             "watermarkKey": "time",
             "options": {"fn": "backup_steps:make", "ratePerSecond": 2_000, "segments": SEGMENTS}},
            {"name": "count", "type": "reduce", "groupByKey": "group", "fluxPolicy": "continue"},
            {"name": "number", "type": "function", "fn": "backup_steps:number",
             "groupByKey": "group", "fluxPolicy": "continue", "state": {"seen": "value[int]"}},
            {"name": "counts", "options": {"path": f"{folder}/counts", "format": "jsonl"}, **write},
            {"name": "numbers", "options": {"path": f"{folder}/numbers", "format": "jsonl"},
             **write},
        ],
        "windows": [{"id": "counts", "task": "count", "type": "fixed", "aggregation": "count",
                     "windowKey": "time", "range": [WIDTH, "milliseconds"]}],
        "triggers": [{"windowId": "counts", "type": "watermark", "postEvictor": ["all"],
                      "emit": "backup_steps:counted"}],
    })  # fmt: skip


@pytest.fixture(params=["zookeeper", "folder"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    """Opens a cluster without a log behind it, each time another one, over the same state."""
    modules = tmp_path / "backup_steps.py"
    modules.write_text(STEPS)
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


def rows(folder: Path) -> list[dict[str, Any]]:
    files = [file for file in folder.glob("part-*") if file.is_file()]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def await_rows(cluster: Cluster, folder: Path, count: int) -> None:
    until_s = time.monotonic() + WAIT_S
    while len(rows(folder)) < count:
        assert time.monotonic() < until_s, f"{len(rows(folder))} rows of {count}"
        assert not cluster.replica.killed_jobs
        time.sleep(0.02)


def check_exact(folder: Path) -> None:
    """Whatever was lost and restored, each row is there once, as if nothing had been."""
    found = Counter((row["n"], row["seen"]) for row in rows(folder / "numbers"))
    assert found == Counter((n, n // GROUPS + 1) for n in range(SEGMENTS))
    counts = Counter((row["group"], row["from"], row["count"]) for row in rows(folder / "counts"))
    expected = (
        (group, lower, WIDTH // GROUPS)
        for group in range(GROUPS)
        for lower in range(0, SEGMENTS, WIDTH)
    )
    assert counts == Counter(expected)


def test_windows_keyed_state_and_files_are_exact_when_a_lost_log_is_restored(
    opened: Callable[[], Cluster], tmp_path: Path
) -> None:
    to, out = tmp_path / "backups", tmp_path / "out"
    with opened() as lost:
        (worker,) = lost.start_workers(1, PEERS)
        id = lost.submit(job(out))
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
    check_exact(out)


@pytest.mark.slow
@pytest.mark.parametrize("opened", ["folder"], indirect=True)
def test_a_job_on_spark_goes_on_from_the_last_micro_batch_of_a_backup(
    opened: Callable[[], Cluster], tmp_path: Path
) -> None:
    to, out = tmp_path / "backups", tmp_path / "out"
    manifest = job(out)
    spark = {"master": "local[1]", "sparkConf": {"spark.sql.shuffle.partitions": "2"}}
    manifest["spec"] |= {"engine": "spark", "spark": spark}
    manifest["spec"]["catalog"][0]["options"] = {"fn": "backup_steps:make", "ratePerSecond": 300}
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
    numbers = [row["n"] for row in rows(out / "numbers")]
    assert sorted(numbers) == list(range(len(numbers))), "each once, and none is missing"
    assert all(row["seen"] == row["n"] // GROUPS + 1 for row in rows(out / "numbers"))
