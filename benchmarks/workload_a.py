"""Onyx against its peers on workload a. `python -m benchmarks.workload_a [--contender NAME]...`

Onyx runs as its users run it, by `onyx run`, with its own ZooKeeper. `onyx-1` has all tasks in one
process, `onyx-3` each in a process of its own, connected by gRPC.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import yaml
from benchmarks.data import Data
from benchmarks.figures import Figure
from benchmarks.harness import Answer, Contender, Result, WrongAnswer
from benchmarks.peers import CODE, HERE, measure, peers

TASKS = 3
"""Virtual peers of the job, one a task, dealt to the processes."""


def _command(
    data: Data, folder: Path, *, job: str, processes: int, guarantee: str
) -> Sequence[str]:
    manifest = yaml.safe_load((HERE / "jobs" / job).read_text())
    spec = manifest["spec"]
    spec["guarantee"] = guarantee
    spec["catalog"][0]["options"]["path"] = str(data.folder / "*.jsonl")
    spec["lifecycles"][0]["options"]["folder"] = str(folder)
    path = folder / job
    path.write_text(yaml.safe_dump(manifest, sort_keys=False))
    return [
        *(sys.executable, "-m", "onyx.cli", "run", str(path)),
        *("--processes", str(processes), "--peers", str(TASKS)),
        *("--modules", "bench_tasks"),
    ]


def _answer(output: str, folder: Path) -> Answer:
    """The shares of all processes that had the sink."""
    shares = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not shares:
        raise WrongAnswer(f"no process left an answer:\n{output[-3000:]}")
    return sum(count for count, _ in shares), sum(total for _, total in shares)


def onyx() -> dict[str, Contender]:
    """The ways in which Onyx is measured."""
    ways = {
        "onyx-1": ("a.yaml", 1, "at-least-once", "1 process, short circuit"),
        "onyx-1-most-once": ("a.yaml", 1, "at-most-once", "1 process, no acking"),
        "onyx-1-routed": ("a-routed.yaml", 1, "at-least-once", "filter as a flow condition"),
        "onyx-3": ("a.yaml", TASKS, "at-least-once", "3 processes over gRPC"),
        "onyx-3-most-once": ("a.yaml", TASKS, "at-most-once", "3 processes, no acking"),
    }
    environment = {**CODE, "PATH": os.environ.get("PATH", "")}
    return {
        name: Contender(
            name,
            partial(_command, job=job, processes=processes, guarantee=guarantee),
            _answer,
            environment,
            note,
        )
        for name, (job, processes, guarantee, note) in ways.items()
    }


GOALS = (
    ("onyx-1", "plain", 1.3, "1 process, short circuit, at-least-once"),
    ("onyx-1", "bytewax", 1.0, "1 process against Bytewax with one worker"),
    ("onyx-3", "plain", 3.0, "3 processes over gRPC, at-least-once"),
    ("onyx-3", "spark", 1.0, "3 processes against Spark with Python UDFs"),
)
"""Program, the peer that it is divided by, and how large the ratio of CPU may be."""


def figures(results: Sequence[Result]) -> list[Figure]:
    """Ratios of CPU a segment: of the medians, and of the best runs."""
    found = {each.name: each for each in results}
    return [
        Figure(
            f"CPU of {ours} / {peer}",
            found[ours].cpu_s_per_million / found[peer].cpu_s_per_million,
            "x",
            goal,
            best=found[ours].cpu_s_low / found[peer].cpu_s_low,
            note=note,
        )
        for ours, peer, goal, note in GOALS
        if ours in found and peer in found
    ]


if __name__ == "__main__":
    quick = ["plain", "onyx-1"]
    measure("Workload a", {**peers(), **onyx()}, figures, quick)
