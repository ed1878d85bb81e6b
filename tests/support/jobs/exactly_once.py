"""A windowed job under kills, stops and rescaling, and the proof that nothing was lost or counted
twice: `python -m tests.support.jobs.exactly_once --segments 5000000 --kills 40 --stops 10`.

Every process that is killed is replaced. The gate keeps the job from ending before the last fault,
so the faults need no timing; where they hit is drawn from the seed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers.cluster import Cluster, Worker
from tests.support.servers.ports import free_port

from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer

CHAOS = Path(__file__).parents[2] / "chaos"
MODULE = CHAOS / "windows_job.py"
PARTITIONS = 4
PEERS = 3
"""Of each worker: two workers are enough for every task."""
RANGE_MS = 20_000
SESSION_TIMEOUT_S = 2.0
READY_WAIT_S = 90.0
END_WAIT_S = 900.0

Row = tuple[str, int, int, int]
"""Window, key, begin, sum."""


@dataclass
class Faults:
    """What happens to the workers while the job runs."""

    kills: int
    stops: int
    seed: int
    rescale: bool = True
    sizes: tuple[int, int, int] = (2, 4, 3)
    """How many workers there are after a quarter, a half and three quarters of the faults."""
    pause_max_s: float = 1.0
    reported: Callable[[str], None] = field(default=lambda text: None)
    besides: Callable[[int], JobId | None] = field(default=lambda number: None)
    """Called before each fault with its number; gives the job that has taken the place of the one
    before, if one has."""


def manifest(folder: Path, segments: int, columns: bool = False) -> dict[str, Any]:
    """Sums by key and time as the watermark passes, and a count by key at the end.

    Args:
        columns: all tasks but the output work on columns.
    """
    form = {"batchFormat": "arrow" if columns else "dicts"}
    fn = "windows_job:measured_columns" if columns else "windows_job:measured"
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "exactly-once"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["read", "pass"], ["pass", "sum"], ["sum", "write"]],
            "catalog": [
                # Partitions are read in turn, but not in step.
                reading(folder, fn, segments, **form, maxPeers=2, watermarkKey="time",
                        allowedDisorder=[DISORDER_MS, "milliseconds"]),
                {"name": "pass", "type": "function", "fn": "windows_job:same", "batchSize": 500,
                 **form},
                {
                    "name": "sum",
                    "type": "reduce",
                    "batchSize": 500,
                    **form,
                    "groupByKey": "key",
                    "minPeers": 1,
                    "fluxPolicy": "continue",
                },
                writing(folder),
            ],
            "windows": [
                {"id": "sums", "task": "sum", "type": "fixed", "aggregation": ["sum", "v"],
                 "windowKey": "time", "range": [RANGE_MS, "milliseconds"]},
                {"id": "counts", "task": "sum", "type": "global", "aggregation": "count"},
            ],
            "triggers": [
                {"id": "passed", "windowId": "sums", "type": "watermark", "postEvictor": ["all"],
                 "refinement": "discarding", "emit": "windows_job:emit_sum"},
                {"id": "end", "windowId": "counts", "type": "timer", "period": [1, "days"],
                 "refinement": "accumulating", "emit": "windows_job:emit_count"},
            ],
        },
    }  # fmt: skip


def expected(segments: int) -> Counter[Row]:
    """By a plain loop."""
    sums: Counter[tuple[int, int]] = Counter()
    counts: Counter[int] = Counter()
    for number in range(segments):
        segment = measured(number)
        key, start = segment["key"], segment["time"] // RANGE_MS * RANGE_MS
        sums[key, start] += segment["v"]
        counts[key] += 1
    rows = [("sums", key, start, total) for (key, start), total in sums.items()]
    rows += [("counts", key, 0, total) for key, total in counts.items()]
    return Counter(rows)


def reading(folder: Path, fn: str, segments: int, **more: Any) -> dict[str, Any]:
    """The input of a job that waits at a gate.

    Args:
        fn: computes a segment from its number; its module has the plugin, too.
    """
    options = {"segments": segments, "fn": fn, "partitions": PARTITIONS,
               "gate": str(folder / "gate")}  # fmt: skip
    its = {"plugin": f"{fn.partition(':')[0]}:gated_generator", "batchSize": 500}
    return {"name": "read", "type": "input", **its, "options": options, **more}


def writing(folder: Path) -> dict[str, Any]:
    """The task of a job that writes what `rows_of` reads."""
    options = {"path": str(folder / "out"), "format": "jsonl", "rollSeconds": 0.5}
    its = {"plugin": "files", "batchSize": 500, "maxPeers": 2, "options": options}
    return {"name": "write", "type": "output", **its}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """What was written."""
    parts = sorted((folder / "out").glob("*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_text("utf-8").splitlines()]


def written(folder: Path) -> Counter[Row]:
    rows = rows_of(folder)
    return Counter((row["window"], row["key"], row["from"], row["sum"]) for row in rows)


def rows_after(
    faults: Faults, address: str, folder: Path, module: Path, job: dict[str, Any], segments: int
) -> list[dict[str, Any]]:
    """What a job with a gate has written, when it has come through all faults to its end.

    Args:
        address: of ZooKeeper.
        module: the code of the job.
        segments: that each of its inputs has.
    """
    with Cluster(address, folder, module) as cluster:
        disturb(cluster, job, Gate(folder / "gate", segments // PARTITIONS), faults)
    return rows_of(folder)


def run(
    cluster: Cluster, folder: Path, segments: int, faults: Faults, columns: bool = False
) -> None:
    """Run the job, of dicts or of columns, through all faults to its end.

    Raises:
        AssertionError: it does not recover, or what it wrote is not what was expected.
    """
    gate = Gate(folder / "gate", segments // PARTITIONS)
    disturb(cluster, manifest(folder, segments, columns), gate, faults)
    compare(written(folder), expected(segments))


def disturb(cluster: Cluster, spec: dict[str, Any], gate: Gate, faults: Faults) -> None:
    """Run a job that reads through the gate through all faults to its end.

    Raises:
        AssertionError: it does not recover.
    """
    chance = random.Random(faults.seed)
    workers = cluster.start_workers(3, PEERS)
    job = cluster.submit(spec)
    cluster.await_ready(job, READY_WAIT_S)
    faulted(cluster, job, workers, faults, chance, gate)
    gate.open(1)
    cluster.await_completed(job, END_WAIT_S)


def faulted(
    cluster: Cluster,
    job: JobId,
    workers: list[Worker],
    faults: Faults,
    chance: random.Random,
    gate: Gate | None = None,
) -> None:
    """All that happens to the workers of a job. Raises AssertionError: it does not recover."""
    plan = ["kill"] * faults.kills + ["stop"] * faults.stops
    chance.shuffle(plan)
    rescalings = {quarter * len(plan) // 4: size for quarter, size in enumerate(faults.sizes, 1)}
    for number, fault in enumerate(plan):
        if gate is not None:
            gate.open((number + 1) / (len(plan) + 1))
        job = faults.besides(number) or job
        if faults.rescale and number in rescalings:
            workers = _rescale(cluster, workers, rescalings[number])
            faults.reported(f"{len(workers)} workers")
        time.sleep(chance.uniform(0, faults.pause_max_s))
        victim = chance.randrange(len(workers))
        faults.reported(f"{number + 1}/{len(plan)} {fault} {workers[victim].tag}")
        (_kill if fault == "kill" else _stop)(cluster, workers, victim, chance)
        cluster.await_ready(job, READY_WAIT_S)


def compare(found: Counter[Any], wanted: Counter[Any]) -> None:
    lost, more = wanted - found, found - wanted
    assert not lost, f"{lost.total()} rows are missing, for example {lost.most_common(5)}"
    assert not more, f"{more.total()} rows are too many, for example {more.most_common(5)}"


class Gate:
    """How much the job may read of each partition."""

    def __init__(self, path: Path, records: int) -> None:
        self._path = path
        self._records = records
        self.open(0)

    def open(self, share: float) -> None:
        following = self._path.with_suffix(".next")
        following.write_text(str(int(share * self._records) + int(share)))
        following.rename(self._path)


def _kill(cluster: Cluster, workers: list[Worker], victim: int, chance: random.Random) -> None:
    dead = cluster.group_of(workers[victim])
    workers[victim].kill()
    workers[victim] = cluster.start_worker(PEERS)
    cluster.await_gone([dead])
    cluster.await_members([workers[victim]], PEERS)


def _stop(cluster: Cluster, workers: list[Worker], victim: int, chance: random.Random) -> None:
    """Longer than its session lives: when it goes on, others have what it had."""
    dead = cluster.group_of(workers[victim])
    workers[victim].stop()
    cluster.await_gone([dead])
    time.sleep(chance.uniform(0, 1))
    workers[victim].resume()
    cluster.await_members([workers[victim]], PEERS)


def _rescale(cluster: Cluster, workers: list[Worker], count: int) -> list[Worker]:
    for leaving in workers[count:]:
        leaving.terminate()
        leaving.wait()
    more = max(0, count - len(workers))
    return workers[:count] + (cluster.start_workers(more, PEERS) if more else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--stops", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--columns", action="store_true", help="record batches in place of dicts")
    given = parser.parse_args()
    faults = Faults(
        given.kills, given.stops, given.seed, reported=lambda text: print(text, flush=True)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            ZooKeeperServer(folder / "zookeeper", port=free_port()) as server,
            Cluster(server.address, folder, MODULE, SESSION_TIMEOUT_S) as cluster,
        ):
            run(cluster, folder, given.segments, faults, given.columns)
    print(f"{given.segments:,} segments: every window exactly right")


sys.path.insert(0, str(CHAOS))
from windows_job import DISORDER_MS, measured  # noqa: E402  (the workers' module)

if __name__ == "__main__":
    main()
