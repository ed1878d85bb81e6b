"""Workload c as a whole job on Spark, against PySpark written by hand. `python -m
benchmarks.spark_jobs [--format columns]`

The same sums by key and minute: `groupBy` with `window`, native in the JVM, and the query of the
job's manifest, which folds windows in Python. Both in one warm session of `local[1]`, from JSON
Lines or, with `--format columns`, from Parquet; CPU is that of driver, JVM and Python workers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.data import Data, events
from benchmarks.harness import Contender, printed_answer
from benchmarks.peers import CONTENDERS, spark_environment
from benchmarks.workload import Goal, Workload, main

GOALS = (Goal("job", "native", 1.3, "a manifest against groupBy and window"),)
NOTES = {"native": "groupBy with window, by hand", "job": "the query of a manifest"}


def dicts() -> Workload:
    return _workload("Workload c on Spark", "c.yaml")


def columns() -> Workload:
    return _workload("Workload c on Spark, in columns", "c-columns.yaml")


def _workload(title: str, job: str) -> Workload:
    made = {
        way: Contender(
            way, partial(_command, way, job), printed_answer, spark_environment(),
            f"{note}, local[1], warm", tells_cpu=True,
        )
        for way, note in NOTES.items()
    }  # fmt: skip
    native = {"native": made["native"]}
    return Workload(title, events, native, {"job": made["job"]}, GOALS, list(NOTES), "native")


def _command(way: str, job: str, data: Data, folder: Path) -> Sequence[str]:
    read = data.as_parquet() if "columns" in job else data
    return [
        sys.executable,
        str(CONTENDERS / "spark_jobs.py"),
        way,
        job,
        str(read.folder),
        str(folder),
    ]


if __name__ == "__main__":
    main(dicts, columns)
