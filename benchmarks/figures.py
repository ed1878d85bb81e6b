"""What every benchmark reports: figures with their goals, as a table and as JSON.

A benchmark is a module with a command line; `run` gives it `--quick` and `--json FILE`, prints its
figures and writes `{"figures": [...], "details": ..., "load_average": [...]}`. The summary
(`python -m benchmarks`) starts each as a process of its own, so that none disturbs the next one's
memory, threads or children, and reads that file.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One number that the README or an issue quotes."""

    name: str
    value: float
    unit: str
    goal: float
    at_least: bool = False
    """The goal is a lower bound; otherwise the value must be at most the goal."""
    best: float | None = None
    """Best of the repeats, where `value` is their median."""
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass(frozen=True)
class Measured:
    """What a benchmark found."""

    figures: Sequence[Figure]
    details: Any = None
    """Anything else that JSON can hold."""


def parser(title: str | None, *others: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The options that every benchmark has, and those of other parsers."""
    made = argparse.ArgumentParser(description=(title or "").splitlines()[0], parents=others)
    made.add_argument("--quick", action="store_true", help="less data, fewer repeats; under 20 s")
    made.add_argument("--json", type=Path, help="write figures and details to this file")
    return made


def run(
    title: str | None,
    measure: Callable[[argparse.Namespace], Measured],
    options: argparse.ArgumentParser | None = None,
) -> None:
    """Command line of a benchmark."""
    chosen = (options or parser(title)).parse_args()
    measured = measure(chosen)
    publish(measured, chosen.json)


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
        best = "" if row["best"] is None else f"{row['best']:,.2f}"
        cells = [
            row["name"],
            f"{bound} {row['goal']:,g} {row['unit']}",
            f"{row['value']:,.2f}",
            best,
            "ok" if row["ok"] else "SHORT",
            row["note"],
        ]
        made.add_row(*cells, *([row.get("command", "")] if commands else []))
    return made
