"""Joins of two streams under kills, stops and rescaling: the same as a plain loop."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import CHAOS, Faults, reading, rows_after, writing
from tests.support.stream_joins import Plain, counted

from onyx.log.server.process import ZooKeeperServer

from streams_job import AFTER_MS, BEFORE_MS, DISORDER_MS, order, payment  # isort: skip

pytestmark = pytest.mark.server


def manifest(folder: Path, segments: int, columns: bool) -> dict[str, Any]:
    form, end = ({"batchFormat": "arrow"}, "_columns") if columns else ({}, "")
    inputs = [
        reading(folder, f"streams_job:{fn}{end}", segments, name=name, **form, watermarkKey="time",
                allowedDisorder=[DISORDER_MS, "milliseconds"])
        for name, fn in (("orders", "order"), ("payments", "payment"))
    ]  # fmt: skip
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "streams"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["orders", "join"], ["payments", "join"], ["join", "write"]],
            "catalog": [
                *inputs,
                {"name": "join", "type": "join", "how": "outer", "batchSize": 500,
                 "left": {"task": "orders", "key": "key", "at": "time"},
                 "right": {"task": "payments", "key": "of", "at": "time", "prefix": "p_"},
                 "within": {"before": BEFORE_MS, "after": AFTER_MS}},
                writing(folder),
            ],
        },
    }  # fmt: skip


def expected(segments: int) -> list[dict[str, Any]]:
    plain = Plain("outer", (("key",), ("of",)), BEFORE_MS, AFTER_MS, prefixes=("", "p_"),
                  at=("time", "time"))  # fmt: skip
    sides: dict[int, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for number in range(segments):
        left, right = order(number), payment(number)
        sides[left["key"]][0].append(left)
        sides[right["of"]][1].append(right)
    return [row for left, right in sides.values() for row in plain.join(left, right)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "segments", "columns"),
    [(3, 20_000, False), (10, 40_000, True)],
)
def test_a_join_is_exactly_right_after_kills_and_a_rescaling(
    zookeeper: ZooKeeperServer, tmp_path: Path, kills: int, segments: int, columns: bool
) -> None:
    faults = Faults(kills=kills, stops=1, seed=13, pause_max_s=0.5)
    job, module = manifest(tmp_path, segments, columns), CHAOS / "streams_job.py"
    rows = rows_after(faults, zookeeper.address, tmp_path, module, job, segments)
    assert counted(rows) == counted(expected(segments))
