"""Workload c: sums by key and minute of event time. `python -m benchmarks.workload_c [--help]`

1,000 keys, events out of order. All allow events to be ten minutes late: Bytewax and PyFlink wait
so long before they close a window; Onyx emits a window when the watermark has passed it, and keeps
it for ten minutes more. `onyx-1` keeps its state in a log on the local disk, exactly-once;
`onyx-1-no-log` is the same but for the log, whose changes nobody asks for; `onyx-1-most-once` has
the log, but neither acks nor remembers what was applied.
"""

from __future__ import annotations

from benchmarks.data import events
from benchmarks.onyx_ways import Way, contenders, emitted
from benchmarks.peers import bytewax, installed, plain, pyflink
from benchmarks.workload import Goal, Workload, main

WAYS = {
    "onyx-1": Way("c.yaml", "exactly-once, state log on disk", guarantee="exactly-once"),
    "onyx-1-no-log": Way(
        "c.yaml", "exactly-once, no state log", guarantee="exactly-once", modules=["bench_no_log"]
    ),
    "onyx-1-most-once": Way("c.yaml", "state log, no acking", guarantee="at-most-once"),
}
GOALS = (
    Goal("bytewax", "onyx-1", 3.0, "fold_window, not ordered", at_least=True),
    Goal("pyflink", "onyx-1", 20.0, "thread mode", at_least=True),
    Goal("onyx-1", "onyx-1-no-log", 1.3, "what the state log costs"),
)


def workload() -> Workload:
    return Workload(
        "Workload c: sums by key and minute",
        events,
        installed(plain("windows"), bytewax("windows", note="fold_window"), pyflink("windows")),
        contenders(WAYS, ["bench_sums"], emitted),
        GOALS,
        quick=["plain", "bytewax", "onyx-1"],
    )


if __name__ == "__main__":
    main(workload())
