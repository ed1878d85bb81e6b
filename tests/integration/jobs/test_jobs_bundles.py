"""A job dies of an exception on real workers: its bundle, the pages of a console over that, and the
batch once more at home, before and after the function is mended."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import ONYX, onyx, ran

from onyx.bundle.bundle_file import read
from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server

MODULE = """
def work(segment):
    if segment["n"] == 7:
        raise ValueError(f"no number: {segment['n']}")
    return segment
"""
JOB = {
    "apiVersion": "onyx.dev/v1beta1",
    "kind": "OnyxJob",
    "metadata": {"name": "returns"},
    "spec": {
        "workflow": [["read", "work"], ["work", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "generator", "options": {"segments": 20}},
            {"name": "work", "type": "function", "fn": "bundled_tasks:work"},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    },
}


def test_a_job_dies_and_its_failure_is_looked_at_and_run_again_at_home(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    modules, home = tmp_path / "bundled_tasks.py", tmp_path / "home"
    modules.write_text(MODULE)
    home.mkdir()
    file = home / "returns.gz"
    with Cluster(zookeeper.address, tmp_path, modules) as cluster:
        cluster.start_workers(1, 4)
        job = cluster.submit(JOB)
        cluster.until(lambda replica: job in replica.killed_jobs, "the job is killed")
        done = onyx(cluster.settings, "bundle", "returns", "--output", str(file), "--values")
    assert (done.returncode, done.stderr) == (0, "")
    bundle = read(file)
    (worker,) = bundle.workers.values()
    assert any("task work failed" in each or "ValueError" in each for each in worker.lines)
    assert bundle.measures.workers

    with subprocess.Popen(
        [sys.executable, "-P", "-m", ONYX, "console", "--bundle", str(file), "--port", "0"],
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
    ) as console:
        assert console.stdout is not None
        address = console.stdout.readline().split(" at ")[-1].strip()
        pages = {
            path: fetched(address + path)
            for path in ("", "jobs/returns", "jobs/returns/manifest", "cluster", "time")
        }
        console.terminate()
    assert "no number: 7" in pages["jobs/returns"]
    assert "a bundle of returns" in pages[""]

    (home / "bundled_tasks.py").write_text(MODULE)
    replay = ("replay", "returns.gz", "--modules", "bundled_tasks")
    done = ran(home, *replay)
    assert done.returncode == 1, done.stderr
    assert "then: task work, apply-fn: bundled_tasks:work raised ValueError: no number: 7" in (
        done.stdout
    )
    assert "now: the same: " in done.stdout
    (home / "bundled_tasks.py").write_text("def work(segment):\n    return segment\n")
    done = ran(home, *replay)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "now: none, it passes")


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
        assert answer.status == 200
        return str(answer.read().decode())
