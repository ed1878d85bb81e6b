"""Workload a: parse JSON, add one, keep the even. `python -m benchmarks.workload_a [--help]`

`onyx-1` has all tasks in one process, `onyx-3` each in a process of its own, connected by gRPC.
"""

from __future__ import annotations

from benchmarks.data import segments
from benchmarks.onyx_ways import Way, contenders, shares
from benchmarks.peers import bytewax, installed, plain, spark
from benchmarks.workload import Goal, Workload, main

WAYS = {
    "onyx-1": Way("a.yaml", "1 process, short circuit"),
    "onyx-1-most-once": Way("a.yaml", "1 process, no acking", guarantee="at-most-once"),
    "onyx-1-routed": Way("a-routed.yaml", "filter as a flow condition"),
    "onyx-3": Way("a.yaml", "3 processes over gRPC", processes=3),
    "onyx-3-most-once": Way("a.yaml", "3 processes, no acking", 3, "at-most-once"),
}
GOALS = (
    Goal("onyx-1", "plain", 1.3, "1 process, short circuit, at-least-once"),
    Goal("onyx-1", "bytewax", 1.0, "1 process against Bytewax with one worker"),
    Goal("onyx-3", "plain", 3.0, "3 processes over gRPC, at-least-once"),
    Goal("onyx-3", "spark", 1.0, "3 processes against Spark with Python UDFs"),
)


def workload() -> Workload:
    return Workload(
        "Workload a: parse JSON, add one, keep the even",
        segments,
        installed(plain("segments"), bytewax("segments"), spark()),
        contenders(WAYS, ["bench_tasks"], shares),
        GOALS,
        quick=["plain", "onyx-1"],
    )


if __name__ == "__main__":
    main(workload())
