"""Workload c: sums by key and minute of event time. `python -m benchmarks.workload_c
[--format columns]`

1,000 keys, events out of order. All allow events to be ten minutes late: Bytewax and PyFlink wait
so long before they close a window; Onyx emits a window when the watermark has passed it, and keeps
it for ten minutes more. `onyx-1` keeps its state in a log on the local disk, exactly-once;
`onyx-1-no-log` is the same but for the log, whose changes nobody asks for; `onyx-1-most-once` has
the log, but neither acks nor remembers what was applied. With `--format columns` Onyx reads
and sums record batches, from Parquet or (`onyx-1-jsonl`) from the files of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.data import events
from benchmarks.onyx_ways import Way, contenders, emitted
from benchmarks.peers import by_name, bytewax, plain, pyarrow, pyflink, spark
from benchmarks.workload import Goal, Workload, command_line

WAYS = {
    "onyx-1": Way("c.yaml", "exactly-once, state log on disk", guarantee="exactly-once"),
    "onyx-1-no-log": Way(
        "c.yaml", "exactly-once, no state log", guarantee="exactly-once", modules=["bench_no_log"]
    ),
    "onyx-1-most-once": Way("c.yaml", "state log, no acking", guarantee="at-most-once"),
}
GOALS = (
    Goal("onyx-1", "bytewax", 0.33, "fold_window, not ordered"),
    Goal("onyx-1", "pyflink", 0.05, "thread mode"),
    Goal("onyx-1", "onyx-1-no-log", 1.3, "what the state log costs"),
)
COLUMNS_WAYS = {
    "onyx-1": Way("c-columns.yaml", "exactly-once, state log on disk, Parquet", 1, "exactly-once",
                  parquet=True),
    "onyx-1-jsonl": Way("c-columns.yaml", "the same, JSON Lines", 1, "exactly-once"),
    "onyx-3": Way("c-columns.yaml", "3 processes, exactly-once, Parquet", 3, "exactly-once",
                  parquet=True),
}  # fmt: skip
COLUMNS_GOALS = (
    Goal("onyx-1", "plain", 0.35, "exactly-once with state log, Parquet"),
    Goal("onyx-1-jsonl", "plain", 0.35, "exactly-once with state log, JSON Lines"),
    Goal("onyx-1", "bytewax", 0.04, "fold_window, not ordered"),
)


def workload() -> Workload:
    return Workload(
        "Workload c: sums by key and minute",
        events,
        by_name(
            plain("windows"),
            bytewax("windows", note="fold_window"),
            spark("windows"),
            pyflink("windows"),
        ),
        contenders(WAYS, [], emitted),
        GOALS,
        quick=["plain", "bytewax", "onyx-1"],
    )


def columns() -> Workload:
    return Workload(
        "Workload c in columns: sums by key and minute",
        events,
        by_name(
            plain("windows"),
            pyarrow("windows"),
            bytewax("windows", note="fold_window"),
            spark("windows", columns=True),
            pyflink("windows"),
        ),
        contenders(COLUMNS_WAYS, [], emitted),
        COLUMNS_GOALS,
        quick=["plain", "bytewax", "onyx-1"],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    command_line(workload, columns, arguments)


if __name__ == "__main__":
    main()
