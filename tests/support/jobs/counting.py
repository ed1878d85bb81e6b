"""A job whose rows say whether anything was lost or counted twice: windows that count, and a state
by key that numbers, exactly once, into files."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.jobs.yaml_jobs import job_of
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster

WIDTH, GROUPS = 500, 4
STEPS = f"""
import pyarrow.compute as pc


def make(n):
    return {{"n": n, "group": n % {GROUPS}, "time": n}}


def number(segment, state):
    state.seen = (state.seen or 0) + 1
    return {{"n": segment["n"], "seen": state.seen}}


def doubled(table):
    return table.append_column("twice", pc.multiply(table["n"], 2))


def counted(event, window, trigger, state_event, state):
    return {{"group": state_event["group_key"], "from": state_event["lower_bound"], "count": state}}
"""
MODULE = "counting_steps"


def counting_module(folder: Path) -> Path:
    """The module with the functions of the job, written there."""
    file = folder / f"{MODULE}.py"
    file.write_text(STEPS)
    return file


def counting_job(folder: Path, *, columns: bool = False, **options: Any) -> dict[str, Any]:
    """The job, which writes below a folder.

    Args:
        columns: it counts record batches, which a function has made.
        options: of its generator.
    """
    write = {"type": "output", "plugin": "files", "batchSize": 100}
    by_group = {"groupByKey": "group", "fluxPolicy": "continue"}
    double = {"name": "double", "type": "function", "fn": f"{MODULE}:doubled"}
    arrow = {"batchFormat": "arrow"} if columns else {}
    way = [["read", "double"], ["double", "count"]] if columns else [["read", "count"]]
    return job_of("counting", {
        "guarantee": "exactly-once",
        "workflow": [*way, ["read", "number"], ["count", "counts"], ["number", "numbers"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "generator", "batchSize": 50, "maxPeers": 1,
             "watermarkKey": "time", "options": {"fn": f"{MODULE}:make", **options}},
            *([{**double, **arrow}] if columns else []),
            {"name": "count", "type": "reduce", **by_group, **arrow},
            {"name": "number", "type": "function", "fn": f"{MODULE}:number", **by_group,
             "state": {"seen": "value[int]"}},
            {"name": "counts", "options": {"path": f"{folder}/counts", "format": "jsonl"}, **write},
            {"name": "numbers", "options": {"path": f"{folder}/numbers", "format": "jsonl"},
             **write},
        ],
        "windows": [{"id": "counts", "task": "count", "type": "fixed", "aggregation": "count",
                     "windowKey": "time", "range": [WIDTH, "milliseconds"]}],
        "triggers": [{"windowId": "counts", "type": "watermark", "postEvictor": ["all"],
                      "emit": f"{MODULE}:counted"}],
    })  # fmt: skip


def rows(folder: Path) -> list[dict[str, Any]]:
    """What an output has published."""
    files = [file for file in folder.glob("part-*") if file.is_file()]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def await_rows(cluster: Cluster, folder: Path, count: int) -> None:
    """Wait until an output has published so many, while no job is killed."""
    until_s = time.monotonic() + WAIT_S
    while len(rows(folder)) < count:
        assert time.monotonic() < until_s, f"{len(rows(folder))} rows of {count}"
        replica = cluster.replica
        assert not [each for each in replica.killed_jobs if replica.loaded(each) is None]
        time.sleep(0.02)


def numbers(folder: Path) -> Counter[tuple[int, int]]:
    """Each number, and how many of its group had been seen with it."""
    return Counter((row["n"], row["seen"]) for row in rows(folder / "numbers"))


def counts(folder: Path) -> Counter[tuple[int, int, int]]:
    """Each window of a group, and what it counted."""
    return Counter((row["group"], row["from"], row["count"]) for row in rows(folder / "counts"))


def numbers_of(segments: int) -> Counter[tuple[int, int]]:
    """What `numbers` has when each of so many segments counts once."""
    return Counter((n, n // GROUPS + 1) for n in range(segments))


def counts_of(segments: int) -> Counter[tuple[int, int, int]]:
    """What `counts` has then."""
    lowers = range(0, segments, WIDTH)
    return Counter((group, lower, WIDTH // GROUPS) for group in range(GROUPS) for lower in lowers)
