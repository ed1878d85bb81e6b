"""The page `docs/figures.md`: what was measured, when, on which machine, and of which commit.

It is made from the table in `quoted`. A run of some benchmarks replaces their figures and keeps
those of others, which it reads from the page itself: each figure names the run that it is of.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import psutil
from benchmarks.checkout import ROOT
from benchmarks.figures import TOO_NOISY, Size, plain
from benchmarks.plot import write_bars
from benchmarks.programs import PROGRAMS
from benchmarks.quoted import QUOTED, Quoted

PAGE = ROOT / "docs" / "figures.md"
PICTURES = {"nexmark": ("nexmark.svg", "Nexmark: thousand events a second a core")}
"""By program, the file beside the page in `pictures/`, and its title."""
NOT_MEASURED = "not measured"
HEAD = """# Figures

Made by `python -m benchmarks --page`, which measures what `--only` names and keeps the rest: each
figure is of the run whose number stands beside it. [Benchmarks](../benchmarks/README.md) says what
the programs do. A ratio is always that of Onyx to the other: lower is better. A figure is the
median of repeats, with the best of them in brackets; a range is of several runs. Where the repeats
differ by as much as was measured, it says *too noisy*.

## Runs
"""


@dataclass(frozen=True)
class Run:
    """One command that measured something."""

    date: str
    commit: str
    machine: str
    load: str
    """Of the machine when it began: others disturb what is measured."""


@dataclass(frozen=True)
class Found:
    """What stands in the page for a figure."""

    measured: str
    run: Run


Page = Mapping[tuple[str, str], Found]
"""By program and text of the figure."""


def this_run(size: Size) -> Run:
    date = datetime.now(UTC).date().isoformat()
    if size is not Size.FULL:
        date += f", `--{size.name.lower()}`"
    return Run(date, _commit(), _machine(), f"{os.getloadavg()[0]:.1f}")


def _commit() -> str:
    """What is measured; changes to the page itself do not count."""
    commit = _git("rev-parse", "--short=8", "HEAD")
    changes = _git("status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}")
    return f"{commit} and changes" if changes else commit


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _machine() -> str:
    found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    model = found[1] if found else platform.machine()
    memory_gib = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores of {model}, {memory_gib:.0f} GiB, "
        f"Python {platform.python_version()}"
    )


def taken(program: str, rows: Sequence[Mapping[str, Any]], run: Run) -> Page:
    """The figures that are quoted of the results of a program; results may lack some.

    Raises:
        ValueError: the goal of a figure is another one here than in its benchmark.
    """
    found = {}
    for each in QUOTED.get(program, ()):
        for row in rows:
            if fnmatchcase(row["name"], each.figure):
                _same_goal(each, row, program)
                note = f"; {row['note']}" if each.with_note and row["note"] else ""
                found[program, each.text] = Found(_measured(row) + note, run)
                break
    return found


def _same_goal(quoted: Quoted, row: Mapping[str, Any], program: str) -> None:
    mine = (quoted.goal, quoted.unit, quoted.at_least)
    its = (row["goal"], row["unit"], row["at_least"])
    if mine != its:
        raise ValueError(
            f"{program}: {row['name']}: the goal is {its}, in benchmarks/quoted {mine}"
        )


def _measured(row: Mapping[str, Any]) -> str:
    if row["value"] is None:
        return TOO_NOISY
    best = f" ({digits(row['best'])})" if row["best"] is not None else ""
    return f"{digits(row['value'])}{best}"


def digits(value: float) -> str:
    """Three of them."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# As text


def render(page: Page) -> str:
    runs = list(dict.fromkeys(found.run for _, found in sorted(page.items(), key=_in_order)))
    numbers = {run: number for number, run in enumerate(runs, 1)}
    lines = [HEAD, _row("run", *(each.name for each in fields(Run))), _row(*["---"] * 5)]
    lines += [_row(str(number), *astuple(run)) for run, number in numbers.items()]
    for program, quoted in QUOTED.items():
        lines += ["", f"## `{PROGRAMS[program].command}`", ""]
        if program in PICTURES:
            name, title = PICTURES[program]
            lines += [f"![{title}](pictures/{name})", ""]
        lines += [_row("figure", "unit", "goal", "measured", "run"), _row(*["---"] * 5)]
        for each in quoted:
            found = page.get((program, each.text))
            cells = (found.measured, str(numbers[found.run])) if found else (NOT_MEASURED, "")
            bound = "at least" if each.at_least else "at most"
            lines.append(_row(each.text, each.unit, f"{bound} {plain(each.goal)}", *cells))
    return "\n".join(lines) + "\n"


def _in_order(entry: tuple[tuple[str, str], Found]) -> tuple[str, str]:
    """Runs by date, the oldest first; those before dates were kept come first."""
    run = entry[1].run
    return (run.date if run.date[0].isdigit() else "", entry[0][0])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def read(text: str) -> Page:
    """The figures of a page that are still quoted."""
    programs = {f"## `{PROGRAMS[name].command}`": name for name in QUOTED}
    runs: dict[str, Run] = {}
    found: dict[tuple[str, str], Found] = {}
    for heading, cells in _rows_of(text):
        if heading == "## Runs":
            runs[cells[0]] = Run(*cells[1:])
        elif heading in programs and cells[-1] in runs:
            program = programs[heading]
            if any(cells[0] == each.text for each in QUOTED[program]):
                found[program, cells[0]] = Found(cells[3], runs[cells[-1]])
    return found


def _rows_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Rows of tables with the heading above them."""
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line
        elif line.startswith("| "):
            cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
            if cells[0] not in ("run", "figure", "---"):
                yield heading, cells


def draw(path: Path, program: str, document: Mapping[str, Any]) -> None:
    """Draw what each contender of a program reaches, for a page that shows it."""
    if program not in PICTURES:
        return
    name, title = PICTURES[program]
    groups = {label: of["rates"] for label, of in document["details"].items()}
    (path.parent / "pictures").mkdir(exist_ok=True)
    write_bars(path.parent / "pictures" / name, title, groups)


def update(path: Path, program: str, rows: Sequence[Mapping[str, Any]], run: Run) -> list[str]:
    """Write what a program has found into a page; texts of figures that it should have found.

    Raises:
        ValueError: see `taken`.
    """
    before = read(path.read_text()) if path.exists() else {}
    new = taken(program, rows, run)
    path.write_text(render({**before, **new}))
    return [each.text for each in QUOTED.get(program, ()) if (program, each.text) not in new]
