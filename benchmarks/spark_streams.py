"""Workload c over inputs without end on Spark, against Structured Streaming written by hand.
`python -m benchmarks.spark_streams [--format columns]`

The same sums by key and minute, in some micro-batches: `withWatermark`, `groupBy` and `window`,
native in the JVM with its state store, and the query of the job's manifest, which folds windows in
Python and keeps their state in chunks. `late` is the same job with `allowedLateness`, which is not
folded before the shuffle. All in one warm session of `local[1]`; CPU is that of driver, JVM and
Python workers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.data import Data, events
from benchmarks.harness import Contender, printed_answer
from benchmarks.peers import CONTENDERS, spark_environment
from benchmarks.workload import Goal, Workload, command_line

GOALS = (Goal("job", "native", 1.3, "a manifest against Structured Streaming"),)
NOTES = {
    "native": "withWatermark, groupBy and window, by hand",
    "job": "the query of a manifest",
    "late": "the same, with allowedLateness",
}


def dicts() -> Workload:
    return _workload("Workload c in micro-batches on Spark", "c.yaml")


def columns() -> Workload:
    return _workload("Workload c in micro-batches on Spark, in columns", "c-columns.yaml")


def _workload(title: str, job: str) -> Workload:
    made = {
        way: Contender(
            way, partial(_command, way, job), printed_answer, spark_environment(),
            f"{note}, local[1], warm", tells_cpu=True,
        )
        for way, note in NOTES.items()
    }  # fmt: skip
    native = {"native": made.pop("native")}
    return Workload(title, events, native, made, GOALS, list(NOTES), "native")


def _command(way: str, job: str, data: Data, folder: Path) -> Sequence[str]:
    read = data.as_parquet() if "columns" in job else data
    script = str(CONTENDERS / "spark_jobs.py")
    return [sys.executable, script, f"{way}-stream", job, str(read.folder), str(folder)]


def main(arguments: Sequence[str] | None = None) -> None:
    command_line(dicts, columns, arguments)


if __name__ == "__main__":
    main()
