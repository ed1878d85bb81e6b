"""Workload b: how often each word comes. `python -m benchmarks.workload_b [--format columns]`

Onyx counts in a global window by word and emits each count once, at the end; Bytewax's
`stateful_map` emits the count at each word, as its users do who keep state, and `bytewax-final`
only at the end. `onyx-3` spreads the words over three processes. With `--format columns` Onyx reads
and splits the lines as record batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.data import words
from benchmarks.onyx_ways import Way, contenders, emitted
from benchmarks.peers import by_name, bytewax, plain, pyarrow, pyflink, spark
from benchmarks.workload import Goal, Workload, command_line

WAYS = {
    "onyx-1": Way("b.yaml", "1 process, exactly-once", guarantee="exactly-once"),
    "onyx-3": Way("b.yaml", "3 processes, shuffle, exactly-once", 3, "exactly-once"),
}
GOALS = (
    Goal("onyx-1", "bytewax", 0.67, "stateful_map, 1 process each"),
    Goal("onyx-3", "bytewax-2", 0.33, "stateful_map on 2 processes, Onyx on 3"),
)
COLUMNS_WAYS = {
    "onyx-1": Way("b-columns.yaml", "1 process, exactly-once, Parquet", 1, "exactly-once",
                  parquet=True),
    "onyx-3": Way("b-columns.yaml", "3 processes, shuffle, exactly-once, Parquet", 3,
                  "exactly-once", parquet=True),
}  # fmt: skip
COLUMNS_GOALS = (
    Goal("onyx-1", "bytewax", 0.125, "stateful_map, 1 process each"),
    Goal("onyx-3", "bytewax-2", 0.125, "stateful_map on 2 processes, Onyx on 3"),
)
COLUMNS_RECORDS = 10_000_000


def workload() -> Workload:
    return Workload(
        "Workload b: count words",
        words,
        by_name(
            plain("words"),
            bytewax("running_count", note="stateful_map"),
            bytewax("running_count", "bytewax-2", "stateful_map", processes=2),
            bytewax("final_count", "bytewax-final", "count_final"),
            spark("words"),
            pyflink("words"),
        ),
        contenders(WAYS, ["bench_sums"], emitted),
        GOALS,
        quick=["plain", "bytewax", "onyx-1"],
    )


def columns() -> Workload:
    return Workload(
        "Workload b in columns: count words",
        words,
        by_name(
            plain("words"),
            pyarrow("words"),
            bytewax("running_count", note="stateful_map"),
            bytewax("running_count", "bytewax-2", "stateful_map", processes=2),
            spark("words", columns=True),
            pyflink("words"),
        ),
        contenders(COLUMNS_WAYS, ["bench_columns"], emitted),
        COLUMNS_GOALS,
        quick=["plain", "bytewax", "onyx-1"],
        records=COLUMNS_RECORDS,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    command_line(workload, columns, arguments)


if __name__ == "__main__":
    main()
