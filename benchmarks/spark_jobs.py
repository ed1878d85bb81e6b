"""Whole jobs on Spark, against PySpark written by hand. `python -m benchmarks.spark_jobs
[--format columns] [--workload flights]`

Workload c: the same sums by key and minute, `groupBy` with `window`, native in the JVM, and the
query of the job's manifest, which folds windows in Python; from JSON Lines or, with `--format
columns`, from Parquet. Flights: the example's job with its four routes and its stage, and the same
Python functions by hand through `mapInArrow`, whose frame is kept for all that is written.

Both in one warm session of `local[1]`; CPU is that of driver, JVM and Python workers. The result of
a stage at an output counts too: by hand in the same session, of the job in the warm Spark child.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.data import Data, events
from benchmarks.flights_data import EXAMPLE, FLIGHTS, flights
from benchmarks.harness import Contender, printed_answer
from benchmarks.peers import CONTENDERS, spark_environment
from benchmarks.workload import RECORDS, Goal, Workload, command_line

GOALS = (Goal("job", "native", 1.3, "a manifest against groupBy and window"),)
NOTES = {"native": "groupBy with window, by hand", "job": "the query of a manifest"}
FLIGHTS_GOALS = (Goal("job", "native", 1.3, "a manifest against mapInArrow and writers"),)
FLIGHTS_NOTES = {"native": "mapInArrow and writers, by hand", "job": "the query of a manifest"}


def dicts() -> Workload:
    return _workload("Workload c on Spark", "c.yaml")


def columns() -> Workload:
    return _workload("Workload c on Spark, in columns", "c-columns.yaml")


def routes() -> Workload:
    """The flights job."""
    environment = spark_environment()
    environment["PYTHONPATH"] += os.pathsep + str(EXAMPLE)
    made = {
        way: Contender(
            way, partial(_command, "spark_flights.py", way, str(EXAMPLE / "job.yaml")),
            printed_answer, environment, f"{note}, local[1], warm", tells_cpu=True,
        )
        for way, note in FLIGHTS_NOTES.items()
    }  # fmt: skip
    return _of("Flights on Spark", flights, made, FLIGHTS_GOALS, FLIGHTS)


def _workload(title: str, job: str) -> Workload:
    made = {
        way: Contender(
            way, partial(_command, "spark_jobs.py", way, job), printed_answer, spark_environment(),
            f"{note}, local[1], warm", tells_cpu=True,
        )
        for way, note in NOTES.items()
    }  # fmt: skip
    return _of(title, events, made, GOALS)


def _of(
    title: str,
    data: Callable[[int], Data],
    made: dict[str, Contender],
    goals: Sequence[Goal],
    records: int = RECORDS,
) -> Workload:
    native, job = {"native": made["native"]}, {"job": made["job"]}
    return Workload(title, data, native, job, goals, list(made), "native", records)


def _command(program: str, way: str, job: str, data: Data, folder: Path) -> Sequence[str]:
    read = data.as_parquet() if "columns" in job else data
    return [sys.executable, str(CONTENDERS / program), way, job, str(read.folder), str(folder)]


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("--workload", choices=["c", "flights"], default="c")
    given, rest = chosen.parse_known_args(arguments)
    command_line(*((routes, routes) if given.workload == "flights" else (dicts, columns)), rest)


if __name__ == "__main__":
    main()
