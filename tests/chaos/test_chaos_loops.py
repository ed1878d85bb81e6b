"""Loops, and states in place of segments, under kills, stops and rescaling: as a plain loop."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import (
    CHAOS,
    PARTITIONS,
    RANGE_MS,
    Faults,
    Gate,
    Row,
    compare,
    disturb,
    reading,
    writing,
    written,
)
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer

from loops_job import LAPS_MAX, measured  # isort: skip
from windows_job import DISORDER_MS  # isort: skip

pytestmark = pytest.mark.server
MODULE = CHAOS / "loops_job.py"
SEGMENTS = 30_000


KEYED = {"fn": "loops_job:counted_lap", "groupByKey": "key", "fluxPolicy": "continue",
         "minPeers": 1, "state": {"laps": "value[int]"}}  # fmt: skip


def manifest(folder: Path, kind: str) -> dict[str, Any]:
    """Sums by key and time: of what has gone round a loop, perhaps over state, at the end; or as
    the watermark passes, folded before they are sent."""
    loop = kind != "combined"
    time = {"windowKey": "time", "range": [RANGE_MS, "milliseconds"]}
    emit = f"loops_job:emit_{'total' if loop else 'sum'}"
    back = {"fn": "loops_job:lap", "loopTo": "pass", "lapsMax": LAPS_MAX}
    back |= KEYED if kind == "state" else {}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "loops"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["read", "pass"], ["pass", "sum"], ["pass", "turn"], ["turn", "sum"],
                         ["sum", "write"]] if loop
            else [["read", "pass"], ["pass", "sum"], ["sum", "write"]],
            "catalog": [
                reading(folder, "loops_job:measured", SEGMENTS, maxPeers=2, watermarkKey="time",
                        allowedDisorder=[DISORDER_MS, "milliseconds"]),
                {"name": "pass", "type": "function", "fn": "loops_job:same", "batchSize": 500},
                *([{"name": "turn", "type": "function", "batchSize": 500, **back}] * loop),
                {"name": "sum", "type": "reduce", "batchSize": 500, "groupByKey": "key",
                 "minPeers": 1, "fluxPolicy": "continue", "combine": not loop},
                writing(folder),
            ],
            "flowConditions": [
                {"from": ["pass"], "to": ["turn"], "predicate": [">", "left", 0]},
                {"from": ["pass"], "to": ["sum"], "predicate": ["==", "left", 0]},
                {"from": ["turn"], "to": ["pass"], "predicate": [">", "left", 0]},
                {"from": ["turn"], "to": ["sum"], "predicate": ["==", "left", 0]},
            ] * loop,
            "windows": [
                {"id": "sums", "task": "sum", "type": "global" if loop else "fixed",
                 "aggregation": ["sum", "v"], **({} if loop else time)},
            ],
            "triggers": [
                {"id": "passed", "windowId": "sums", "type": "watermark", "postEvictor": ["all"],
                 "refinement": "discarding", "emit": emit},
            ],
        },
    }  # fmt: skip


def expected(kind: str) -> Counter[Row]:
    loop = kind != "combined"
    sums: Counter[tuple[int, int]] = Counter()
    for number in range(SEGMENTS):
        each = measured(number)
        start = 0 if loop else each["time"] // RANGE_MS * RANGE_MS
        sums[each["key"], start] += each["v"] + (each["left"] if loop else 0)
    return Counter(("sums", key, start, total) for (key, start), total in sums.items())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loop", "state", "combined"])
def test_each_segment_counts_once_after_kills_and_a_rescaling(
    zookeeper: ZooKeeperServer, tmp_path: Path, kind: str
) -> None:
    faults = Faults(kills=3, stops=1, seed=11, pause_max_s=0.5)
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        gate = Gate(tmp_path / "gate", SEGMENTS // PARTITIONS)
        disturb(cluster, manifest(tmp_path, kind), gate, faults)
    compare(written(tmp_path), expected(kind))
