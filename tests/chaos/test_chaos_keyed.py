"""Functions with state under kills, stops and rescaling: the same as a plain loop."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import CHAOS, Faults, reading, rows_after, writing

from onyx.log.server.process import ZooKeeperServer

from keyed_job import KEYS, moved  # isort: skip

pytestmark = pytest.mark.server
STATE = {
    "seen": "value[int]", "total": "value[int]", "told": "value[int]",
    "by_rest": "map[int, int]", "recent": "list[int]",
}  # fmt: skip


def manifest(folder: Path, segments: int) -> dict[str, Any]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "keyed"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["read", "track"], ["track", "known"], ["known", "write"]],
            "catalog": [
                reading(folder, "keyed_job:moved", segments, maxPeers=2, watermarkKey="time"),
                {"name": "track", "type": "function", "fn": "keyed_job:track",
                 "onTimer": "keyed_job:idle", "state": STATE, "stateTtl": "1 day",
                 "batchSize": 500, "groupByKey": "key", "fluxPolicy": "continue"},
                {"name": "known", "type": "function", "batchSize": 500, "maxPeers": 2,
                 "join": {"state": "track.seen", "key": "key", "as": "known", "durable": True}},
                writing(folder),
            ],
        },
    }  # fmt: skip


def check(rows: list[dict[str, Any]], segments: int) -> None:
    """Each segment was stepped once, on what the one before it in its group had left."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for number in range(segments):
        wanted[moved(number)["key"]].add(number)
    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    timers: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        (steps if row["row"] == "step" else timers)[row["key"]].append(row)
    assert len(wanted) == KEYS
    for key, numbers in wanted.items():
        mine = sorted(steps[key], key=lambda row: row["seen"])
        assert [row["seen"] for row in mine] == list(range(1, len(numbers) + 1))
        assert {row["n"] for row in mine} == numbers
        assert all(row["seen"] <= row["known"] <= len(numbers) for row in mine)
        total = 0
        for row in mine:
            total += row["v"]
            assert row["total"] == total
        fired = sorted(timers[key], key=lambda row: (row["seen"], row["due"]))
        assert all(row["by_rest"] == row["seen"] for row in fired)
        assert [row["told"] for row in fired] == [0, *(row["seen"] for row in fired)][:-1]
        assert fired[-1]["seen"] == len(numbers), "all timers fire at the end"
        assert len({row["due"] for row in fired}) == len(fired)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "segments"), [(3, 20_000), pytest.param(10, 100_000, marks=pytest.mark.slow)]
)
def test_states_and_timers_are_exactly_right_after_kills_and_a_rescaling(
    zookeeper: ZooKeeperServer, tmp_path: Path, kills: int, segments: int
) -> None:
    faults = Faults(kills=kills, stops=1, seed=11, pause_max_s=0.5)
    job, module = manifest(tmp_path, segments), CHAOS / "keyed_job.py"
    rows = rows_after(faults, zookeeper.address, tmp_path, module, job, segments)
    check(rows, segments)
