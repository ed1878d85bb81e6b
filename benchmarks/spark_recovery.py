"""How soon an endless job on Spark writes rows, at first and after a death.
`python -m benchmarks.spark_recovery`

Two worker processes; the generator gives 100 rows a second and `engine: spark` writes them as JSON
Lines. Measured is the time until a part appears that was not there: from the submission, and from
SIGKILL of the query's driver, of its JVM and of the worker that runs both. A worker's death is
noticed when its session ends, so the last cannot be less than the session timeout; nearly all else
is the start of a driver and its JVM.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from benchmarks import onyx_run
from benchmarks.figures import Figure, Measured, Size, parser, run
from benchmarks.recovery import until
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer

MODULE = onyx_run.JOBS / "bench_tasks.py"
SESSION_TIMEOUT_S = 6.0
GOAL_FIRST_S, GOAL_AGAIN_S = 10.0, 20.0
WORKERS, PEERS = 2, 2
ROWS_PER_SECOND = 100
SETTLE_S = 3.0
"""From the first rows to a kill."""
APPEARS_S = 300.0
MARKS = {
    "driver": "onyx.spark_query",
    "JVM": "org.apache.spark.deploy",
    "worker": "onyx.spark_query",
}
"""What stands in the command line of a process that is killed; the worker is the driver's."""


def manifest(folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "endless"},
        "spec": {
            "engine": "spark",
            "workflow": [["read", "write"]],
            "catalog": [
                {
                    "name": "read", "type": "input", "plugin": "generator",
                    "options": {"ratePerSecond": ROWS_PER_SECOND},
                },
                {
                    "name": "write", "type": "output", "plugin": "files",
                    "options": {"path": str(folder / "out")},
                },
            ],
        },
    }  # fmt: skip


def measure(options: argparse.Namespace) -> Measured:
    victims = ["driver"] if options.size is Size.QUICK else [*MARKS]
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        with (
            ZooKeeperServer(folder / "zookeeper") as server,
            Cluster(server.address, folder, MODULE, SESSION_TIMEOUT_S) as cluster,
        ):
            cluster.start_workers(WORKERS, PEERS)
            parts = folder / "out"
            first_s = _appearing(parts, lambda: cluster.submit(manifest(folder)))
            again = {each: _appearing(parts, partial(_kill, cluster, each)) for each in victims}
    figures = [Figure("first rows of an endless job", first_s, "s", GOAL_FIRST_S)]
    for victim, took_s in again.items():
        note = f"session timeout {SESSION_TIMEOUT_S:g} s" if victim == "worker" else ""
        figures.append(Figure(f"rows again, {victim} killed", took_s, "s", GOAL_AGAIN_S, note=note))
    return Measured(figures, {"first_s": first_s, **again})


def _appearing(parts: Path, act: Callable[[], object]) -> float:
    """Seconds from an act to the first part that was not there before it."""
    before = set(_parts(parts))
    started_s = time.monotonic()
    act()
    until("new rows", lambda: set(_parts(parts)) - before, APPEARS_S)
    took_s = time.monotonic() - started_s
    print(f"{took_s:.1f} s", file=sys.stderr, flush=True)
    time.sleep(SETTLE_S)
    return took_s


def _parts(folder: Path) -> list[Path]:
    return list(folder.glob("part-*"))


def _kill(cluster: Cluster, victim: str) -> None:
    for worker in cluster.workers:
        if not worker.running:
            continue
        for each in psutil.Process(worker.pid).children(recursive=True):
            if MARKS[victim] in " ".join(each.cmdline()):
                worker.kill() if victim == "worker" else each.kill()
                return
    raise RuntimeError(f"no {victim} runs")


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, parser(__doc__), arguments)


if __name__ == "__main__":
    main()
