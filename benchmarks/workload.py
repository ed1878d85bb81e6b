"""A workload: data sets of any size, programs that compute the same of them, and goals.

The programs are compared by CPU a record, each run as a whole process tree and its answer checked
(`harness`). `command_line` is that of a workload's module.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.data import Data
from benchmarks.figures import Figure, Measured, Options, parser, ratio, run
from benchmarks.harness import Absent, Contender, Result, compare, report, used

RECORDS, RECORDS_QUICK, RECORDS_TINY = 1_000_000, 200_000, 1_000
FEW = (1_000, 1_000, 0)
"""Records of the run that tells the start-up, by size; 0: start-up is left in."""
REPEATS = (3, 2, 1)
"""By size."""
SLOW = ("spark", "spark-arrow", "pyflink")
"""Programs that take long to start: `--tiny` leaves them out."""
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

    @property
    def tiny(self) -> frozenset[str]:
        """What `--tiny` compares: programs whose figures have goals, but for slow ones."""
        named = {name for goal in self.goals for name in (goal.over, goal.under)}
        return frozenset(named.difference(SLOW))


def command_line(
    dicts: Callable[[], Workload],
    columns: Callable[[], Workload],
    arguments: Sequence[str] | None = None,
) -> None:
    """Compare what the command line chooses, of the workload in the format that it chooses."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--format", choices=["dicts", "columns"], default="dicts")
    given, rest = first.parse_known_args(arguments)
    compared({"dicts": dicts, "columns": columns}[given.format](), rest, first)


def compared(
    workload: Workload, arguments: Sequence[str] | None = None, *others: argparse.ArgumentParser
) -> None:
    """Compare what the command line chooses of a workload; `others` have options of the caller."""
    run(lambda options: _measure(workload, options), _options(workload, *others), arguments)


def _measure(workload: Workload, options: argparse.Namespace) -> Measured:
    results = compare(
        chosen(workload, options),
        workload.data(options.records),
        workload.data(options.few_records) if options.few_records else None,
        options.repeats,
        options.timeout,
    )
    details = report(f"{workload.title}, {options.records:,} records", results, workload.unit)
    return Measured(figures(workload.goals, results), details)


def _options(workload: Workload, *others: argparse.ArgumentParser) -> Options:
    made = parser(workload.title, *others)
    every = [*workload.peers, *workload.onyx]
    made.add_argument("--contender", action="append", choices=every, help="only this; repeatable")
    made.add_argument("--peers", action="store_true", help="only programs of others")
    made.sized("--records", workload.records, RECORDS_QUICK, RECORDS_TINY)
    made.sized("--few-records", *FEW, "to tell the start-up; 0 leaves it in")
    made.sized("--repeats", *REPEATS)
    made.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds a run may take")
    return made


def chosen(workload: Workload, options: argparse.Namespace) -> list[Contender | Absent]:
    """Those named, or those of others, or all; `--quick` and `--tiny` leave out the slow ones."""
    every = {**workload.peers, **workload.onyx}
    if options.contender:
        return [every[name] for name in options.contender]
    offered = workload.peers if options.peers else every
    taking_part = (frozenset(every), frozenset(workload.quick), workload.tiny)[options.size]
    return [each for each in offered.values() if each.name in taking_part]


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
