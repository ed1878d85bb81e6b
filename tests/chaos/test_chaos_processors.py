"""A processor under kills, stops and rescaling: the same as a plain loop."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import CHAOS, Faults, reading, rows_after, writing

from onyx.log.server.process import ZooKeeperServer

from processor_job import EVERY, KEYS, moved  # isort: skip

pytestmark = pytest.mark.server


def manifest(folder: Path, segments: int) -> dict[str, Any]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "processors"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["read", "sums"], ["sums", "write"]],
            "catalog": [
                reading(folder, "processor_job:moved", segments, maxPeers=2),
                {"name": "sums", "type": "function", "processor": "processor_job:Sums",
                 "batchSize": 500, "groupByKey": "key", "fluxPolicy": "continue"},
                writing(folder),
            ],
        },
    }  # fmt: skip


def check(rows: list[dict[str, Any]], segments: int) -> None:
    """Each segment was added once, to what the one before it in its group had left."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for number in range(segments):
        wanted[moved(number)["key"]].add(number)
    kinds: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        kinds[row["row"]][row["key"]].append(row)
    assert len(wanted) == KEYS
    for key, numbers in wanted.items():
        mine = sorted(kinds["step"][key], key=lambda row: row["seen"])
        assert [row["seen"] for row in mine] == list(range(1, len(numbers) + 1))
        assert {row["n"] for row in mine} == numbers
        total = 0
        for row in mine:
            total += row["v"]
            assert row["total"] == total
        more = sorted(row["seen"] for row in kinds["more"][key])
        assert more == list(range(EVERY, len(numbers) + 1, EVERY))
        assert [(row["seen"], row["total"]) for row in kinds["end"][key]] == [(len(numbers), total)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "segments"), [(3, 20_000), pytest.param(10, 100_000, marks=pytest.mark.slow)]
)
def test_a_processor_is_exactly_right_after_kills_and_a_rescaling(
    zookeeper: ZooKeeperServer, tmp_path: Path, kills: int, segments: int
) -> None:
    faults = Faults(kills=kills, stops=1, seed=11, pause_max_s=0.5)
    job, module = manifest(tmp_path, segments), CHAOS / "processor_job.py"
    rows = rows_after(faults, zookeeper.address, tmp_path, module, job, segments)
    check(rows, segments)
