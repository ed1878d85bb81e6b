"""A workload: data sets of any size, programs that compute the same of them, and goals.

The programs are compared by CPU a record, each run as a whole process tree and its answer checked
(`harness`). `main` is the command line of a workload's module.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.data import Data
from benchmarks.figures import Figure, Measured, parser, publish, ratio
from benchmarks.harness import Absent, Contender, Result, compare, report, used

RECORDS, RECORDS_QUICK, RECORDS_FEW = 1_000_000, 200_000, 1_000
REPEATS, REPEATS_QUICK = 3, 2
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Goal:
    """How large the ratio of the CPU of two programs may be: Onyx over another, lower is better."""

    over: str
    under: str
    value: float
    note: str


@dataclass(frozen=True)
class Workload:
    title: str
    data: Callable[[int], Data]
    """A data set of so many records."""
    peers: Mapping[str, Contender | Absent]
    """Programs of others, by name."""
    onyx: Mapping[str, Contender]
    """The ways in which Onyx is measured, by name."""
    goals: Sequence[Goal]
    quick: Sequence[str]
    """What `--quick` compares."""
    unit: str = "plain"
    """The contender to which the table gives ratios."""
    records: int = RECORDS


def main(dicts: Callable[[], Workload], columns: Callable[[], Workload]) -> None:
    """Compare what the command line chooses, of the workload in the format that it chooses."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--format", choices=["dicts", "columns"], default="dicts")
    given, rest = first.parse_known_args()
    workload = {"dicts": dicts, "columns": columns}[given.format]()
    options = _parser(workload, first).parse_args(rest)
    contenders = chosen(workload, options)
    records = options.records or (RECORDS_QUICK if options.quick else workload.records)
    results = compare(
        contenders,
        workload.data(records),
        workload.data(options.few_records),
        options.repeats or (REPEATS_QUICK if options.quick else REPEATS),
        options.timeout,
    )
    details = report(f"{workload.title}, {records:,} records", results, workload.unit)
    publish(Measured(figures(workload.goals, results), details), options.json)


def _parser(workload: Workload, first: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made = parser(workload.title, first)
    every = [*workload.peers, *workload.onyx]
    made.add_argument("--contender", action="append", choices=every, help="only this; repeatable")
    made.add_argument("--peers", action="store_true", help="only programs of others")
    made.add_argument("--records", type=int)
    made.add_argument("--few-records", type=int, default=RECORDS_FEW, help="to tell the start-up")
    made.add_argument("--repeats", type=int)
    made.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds a run may take")
    return made


def chosen(workload: Workload, options: argparse.Namespace) -> list[Contender | Absent]:
    """Those named, or those of others, or all; `--quick` leaves out the slow ones."""
    every = {**workload.peers, **workload.onyx}
    if options.contender:
        return [every[name] for name in options.contender]
    offered = workload.peers if options.peers else every
    return [each for each in offered.values() if not options.quick or each.name in workload.quick]


def figures(goals: Sequence[Goal], results: Sequence[Result | Absent]) -> list[Figure]:
    """Ratios of CPU a record, of those that ran."""
    cpu = used(results)
    return [
        ratio(
            f"CPU of {goal.over} / {goal.under}",
            cpu[goal.over],
            cpu[goal.under],
            goal.value,
            goal.note,
        )
        for goal in goals
        if goal.over in cpu and goal.under in cpu
    ]
