"""Workload a: read, add one, keep the even. `python -m benchmarks.workload_a [--format columns]`

`onyx-1` has all tasks in one process, `onyx-3` all in each of three; in those of `-apart` each task
is in a process of its own, connected by gRPC.
Onyx finds the size of batches itself; those of `-1000` are of 1,000. With `--format columns` it
reads Parquet and works on record batches; `pyarrow` is the same program without an
engine, and `-jsonl` reads the JSON Lines that the plain loop reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.data import segments
from benchmarks.onyx_ways import Way, contenders, shares
from benchmarks.peers import by_name, bytewax, plain, pyarrow, pyflink, spark
from benchmarks.workload import Goal, Workload, command_line

WAYS = {
    "onyx-1": Way("a.yaml", "1 process, short circuit"),
    "onyx-1-most-once": Way("a.yaml", "1 process, no acking", guarantee="at-most-once"),
    "onyx-1-routed": Way("a-routed.yaml", "filter as a flow condition"),
    "onyx-1-1000": Way("a.yaml", "1 process, batches of 1,000", batch_size=1_000),
    "onyx-3": Way("a.yaml", "3 processes, all tasks in each", 3),
    "onyx-3-apart": Way("a.yaml", "3 processes, a task each, over gRPC", 3, apart=True),
    "onyx-3-1000": Way("a.yaml", "all in 3, batches of 1,000", 3, batch_size=1_000),
    "onyx-3-most-once": Way("a.yaml", "3 processes, no acking", 3, "at-most-once"),
}
GOALS = (
    Goal("onyx-1", "plain", 1.3, "1 process, short circuit, at-least-once"),
    Goal("onyx-1", "bytewax", 1.0, "1 process against Bytewax with one worker"),
    Goal("onyx-3", "plain", 3.0, "3 processes, at-least-once"),
    Goal("onyx-3", "spark", 0.7, "3 processes against Spark with Python UDFs"),
)
COLUMNS_WAYS = {
    "onyx-1": Way("a-columns.yaml", "1 process, Parquet", parquet=True),
    "onyx-3": Way("a-columns.yaml", "3 processes, Parquet", 3, parquet=True),
    "onyx-3-apart": Way(
        "a-columns.yaml", "3 processes, a task each, Parquet", 3, parquet=True, apart=True
    ),
    "onyx-1-jsonl": Way("a-columns.yaml", "1 process, JSON Lines"),
    "onyx-3-jsonl": Way("a-columns.yaml", "3 processes, JSON Lines", 3),
}
COLUMNS_GOALS = (
    Goal("onyx-1", "pyarrow", 1.5, "1 process, Parquet in"),
    Goal("onyx-3", "pyarrow", 4.0, "3 processes, Parquet in"),
    Goal("onyx-1-jsonl", "plain", 0.7, "1 process, against the loop over dicts"),
    Goal("onyx-3-jsonl", "plain", 1.5, "3 processes, against the loop over dicts"),
    Goal("onyx-3", "spark-arrow", 0.33, "mapInArrow over the same files"),
)
COLUMNS_RECORDS = 5_000_000


def workload() -> Workload:
    return Workload(
        "Workload a: parse JSON, add one, keep the even",
        segments,
        by_name(plain("segments"), bytewax("segments"), spark("segments"), pyflink("segments")),
        contenders(WAYS, ["bench_tasks"], shares),
        GOALS,
        quick=["plain", "onyx-1"],
    )


def columns() -> Workload:
    return Workload(
        "Workload a in columns: add one, keep the even",
        segments,
        by_name(
            pyarrow("segments"),
            plain("segments"),
            spark("segments", columns=True),
            pyflink("segments"),
        ),
        contenders(COLUMNS_WAYS, ["bench_tasks", "bench_columns"], shares),
        COLUMNS_GOALS,
        quick=["pyarrow", "plain", "onyx-1"],
        unit="pyarrow",
        records=COLUMNS_RECORDS,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    command_line(workload, columns, arguments)


if __name__ == "__main__":
    main()
