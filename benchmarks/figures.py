"""What every benchmark reports: figures with their goals, as a table and as JSON.

A benchmark is a module with a `main`, its command line; `run` gives it the sizes `--quick` and
`--tiny` and `--json FILE`, prints its figures and writes `{"figures": [...], "details": ...,
"load_average": [...]}`. The summary (`python -m benchmarks`) starts each as a process of its own,
so that none disturbs the next one's memory, threads or children, and reads that file. How much data
there is, how many repeats, and what else depends on the size, is an option with three defaults
(`Options.sized`): one that is given on the command line holds at every size.

A number that repeats contradict is none: `Repeats.too_noisy` is the one rule for all benchmarks.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import checkout
from rich.console import Console
from rich.table import Table

TOO_NOISY = "too noisy"


@dataclass(frozen=True)
class Repeats:
    """What the repeats of one measurement gave, in the order in which they ran."""

    values: tuple[float, ...]

    @property
    def typical(self) -> float:
        return median(self.values)

    @property
    def best(self) -> float:
        return min(self.values)

    @property
    def spread(self) -> float:
        return max(self.values) - min(self.values)

    @property
    def too_noisy(self) -> bool:
        """The repeats differ by as much as was measured, or less than nothing was measured.

        A single repeat has no spread: only its sign speaks against it. Repeats that pass are all
        above zero.
        """
        return self.typical <= 0 or self.spread >= self.typical

    def less(self, other: Repeats) -> Repeats:
        """The difference in each repeat, in which the two ran one after the other."""
        pairs = zip(self.values, other.values, strict=True)
        return Repeats(tuple(mine - its for mine, its in pairs))

    def per(self, many: float) -> Repeats:
        return Repeats(tuple(each / many for each in self.values))

    def over(self, other: Repeats) -> tuple[float | None, float | None]:
        """Ratio of the medians and of the best; None if one of the two is too noisy."""
        if self.too_noisy or other.too_noisy:
            return None, None
        return self.typical / other.typical, self.best / other.best


@dataclass(frozen=True)
class Figure:
    """One number that the README or an issue quotes."""

    name: str
    value: float | None
    """None: the repeats contradict each other too much to say."""
    unit: str
    goal: float | None = None
    """None: it says where costs are, and nothing is promised."""
    at_least: bool = False
    """The goal is a lower bound; otherwise the value must be at most the goal."""
    best: float | None = None
    """Best of the repeats, where `value` is their median."""
    note: str = ""

    @property
    def ok(self) -> bool | None:
        """Whether it reaches its goal, if that can be said."""
        if self.value is None or self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def ratio(
    name: str, over: Repeats, under: Repeats, goal: float | None = None, note: str = ""
) -> Figure:
    """The figure of one measurement divided by another, where smaller is better."""
    value, best = over.over(under)
    return Figure(name, value, "x", goal, best=best, note=note)


def typical(name: str, found: Repeats, unit: str, goal: float, note: str = "") -> Figure:
    """The figure of the median of a measurement, where smaller is better."""
    if found.too_noisy:
        return Figure(name, None, unit, goal, note=note)
    return Figure(name, found.typical, unit, goal, best=found.best, note=note)


@dataclass(frozen=True)
class Measured:
    """What a benchmark found."""

    figures: Sequence[Figure]
    details: Any = None
    """Anything else that JSON can hold."""


class Size(IntEnum):
    """How much is measured."""

    FULL = 0
    QUICK = 1
    """Less data, fewer repeats: a look."""
    TINY = 2
    """So little that every figure is there. They say nothing: start-up is in them, one run is one
    repeat, and programs are left out that take long to start."""


class Options(argparse.ArgumentParser):
    """The command line of a benchmark. The size is `size` of what is parsed."""

    def __init__(self, title: str | None, *others: argparse.ArgumentParser) -> None:
        super().__init__(description=(title or "").partition("\n\n")[0], parents=others)
        self._sized: dict[str, tuple[Any, Any, Any]] = {}
        sizes = self.add_mutually_exclusive_group()
        for size, text in (
            (Size.QUICK, "less data, fewer repeats; under 20 s for most"),
            (Size.TINY, "so little that every figure is there, and says nothing"),
        ):
            sizes.add_argument(
                f"--{size.name.lower()}", dest="size", action="store_const", const=size,
                default=Size.FULL, help=text,
            )  # fmt: skip
        self.add_argument("--json", type=Path, help="write figures and details to this file")

    def sized(self, name: str, full: int, quick: int, tiny: int, text: str = "") -> None:
        """Add a number that depends on the size where it is not given."""
        defaults = f"{full:,}; {quick:,} with --quick, {tiny:,} with --tiny"
        action = self.add_argument(name, type=int, help=f"{text} ({defaults})".strip())
        self._sized[action.dest] = full, quick, tiny

    def chosen(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """What the command line says, and what follows from its size."""
        found = self.parse_args(arguments)
        for name, defaults in self._sized.items():
            if getattr(found, name) is None:
                setattr(found, name, defaults[found.size])
        return found


def parser(title: str | None, *others: argparse.ArgumentParser) -> Options:
    """The options that every benchmark has, and those of other parsers; of this checkout only.

    Raises:
        SystemExit: what would be measured is another checkout.
    """
    checkout.enforce()
    return Options(title, *others)


def run(
    measure: Callable[[argparse.Namespace], Measured],
    options: Options,
    arguments: Sequence[str] | None = None,
) -> None:
    """Measure what the arguments say, by default those of the command line, and publish it."""
    chosen = options.chosen(arguments)
    publish(measure(chosen), chosen.json)


def publish(measured: Measured, json_path: Path | None) -> None:
    """Print the figures, and write them with the details as JSON."""
    Console(width=140).print(table(rows(measured.figures)))
    document = {
        "figures": rows(measured.figures),
        "details": measured.details,
        "load_average": os.getloadavg(),
    }
    if json_path is not None:
        json_path.write_text(json.dumps(document, indent=2) + "\n")


def rows(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    return [{**asdict(figure), "ok": figure.ok} for figure in figures]


def table(found: Sequence[dict[str, Any]]) -> Table:
    """Rows of `rows`, perhaps with the `command` that measures them."""
    commands = any("command" in row for row in found)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    made = Table(title=f"load average {load}", title_justify="left")
    for heading in ("figure", "goal", "measured", "best", "", "note"):
        made.add_column(heading, justify="right" if heading in ("goal", "measured") else "left")
    if commands:
        made.add_column("command")
    for row in found:
        bound = ">=" if row["at_least"] else "<="
        goal = "" if row["goal"] is None else f"{bound} {plain(row['goal'])} "
        best = "" if row["best"] is None else number(row["best"])
        cells = [
            row["name"],
            f"{goal}{row['unit']}",
            number(row["value"]),
            best,
            {True: "ok", False: "SHORT", None: ""}[row["ok"]],
            row["note"],
        ]
        made.add_row(*cells, *([row.get("command", "")] if commands else []))
    return made


def number(value: float | None, digits: int = 2) -> str:
    """A number that was measured, as tables show it."""
    return TOO_NOISY if value is None else f"{value:,.{digits}f}"


def plain(goal: float) -> str:
    """A goal without an exponent."""
    return f"{goal:,.0f}" if goal >= 1_000 else f"{goal:g}"
