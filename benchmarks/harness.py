"""Run programs as whole process trees and compare what they cost.

A program is started, watched and reaped here: this process is made the subreaper of everything
below it, so that a daemon whose parent has gone is still waited for, and `getrusage` of the
children covers the whole tree. A sampler that adds up `/proc` would miss what short-lived processes
used since its last look.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import psutil
from benchmarks.data import Answer, Data
from benchmarks.figures import Repeats, number
from rich.console import Console
from rich.table import Table

T = TypeVar("T")

SAMPLE_INTERVAL_S = 0.1
LINGER_S = 5.0
"""How long descendants may take to end after the program itself, before they are killed."""
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
"""What each run would compile anew is no start-up: it takes longer than a small workload, and not
the same each time."""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Run:
    """What one run of a program used."""

    wall_s: float
    cpu_s: float
    pss_peak_bytes: int
    output: str


@dataclass(frozen=True)
class Contender:
    """A program that computes a workload."""

    name: str
    command: Callable[[Data, Path], Sequence[str]]
    """The command line for a data set; the path is an empty folder for its files."""
    answer: Callable[[str, Path], Answer]
    """From what it printed or left in its folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    tells_cpu: bool = False
    """It prints `CPU seconds` of the work alone; its start-up varies too much to subtract."""


@dataclass(frozen=True)
class Absent:
    """A program that cannot run here. Tables say so: who reads one sees with whom it compares."""

    name: str
    note: str
    """What would install it."""


@dataclass(frozen=True)
class Result:
    """What one contender used; medians, but for the CPU."""

    name: str
    cpu_s_per_million: Repeats
    """Net of start-up, per million records."""
    total_cpu_s: float
    wall_s: float
    pss_peak_bytes: int
    note: str


class WrongAnswer(Exception):
    """A program did not compute what it should, so its cost says nothing."""


def run(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Run:
    """Run a command to its end, its descendants included.

    Raises:
        RuntimeError: it failed or took longer than `timeout_s`; with the end of its output.
    """
    strangers = frozenset(_descendants())
    before = _children_cpu_s()
    started = time.monotonic()
    with _adopting(), tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **COMPILED, **environment},
        )
        pss_peak = _watch(process, started + timeout_s, strangers)
        wall_s = time.monotonic() - started
        _reap_descendants(strangers)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {process.returncode}\n{text[-3000:]}")
    return Run(wall_s, _children_cpu_s() - before, pss_peak, text)


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Children of children whose parent has ended become those of this process. Afterwards they go
    to `init` again, because nobody would reap them here."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def fresh(work: Callable[..., T], *arguments: object) -> T:
    """What a function of a module gives in a process of its own, which has done nothing else."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _watch(
    process: subprocess.Popen[bytes], deadline: float, strangers: Set[psutil.Process]
) -> int:
    """Wait for the program; the most memory that was seen, of all its processes."""
    pss_peak = 0
    while True:
        try:
            process.wait(SAMPLE_INTERVAL_S)
            return pss_peak
        except subprocess.TimeoutExpired:
            pss_peak = max(pss_peak, sum(map(_pss, _descendants() - strangers)))
        if time.monotonic() > deadline:
            _kill(_descendants() - strangers)
            process.wait()
            return pss_peak


def _descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _pss(process: psutil.Process) -> int:
    """Its part of what it has resident (PSS): a page that several share counts once."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        return int(next(each.split()[1] for each in lines if each.startswith("Pss:"))) * 1_024
    return 0


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _reap_descendants(strangers: Set[psutil.Process]) -> None:
    """Wait for what the program left behind, so that its CPU is counted.

    Args:
        strangers: started by this process before, for other purposes; they are left alone.
    """
    deadline = time.monotonic() + LINGER_S
    while left := set(psutil.Process().children()) - strangers:
        if time.monotonic() > deadline:
            _kill(_descendants() - strangers)
        for process in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
        time.sleep(0.02)


def compare(
    contenders: Sequence[Contender | Absent],
    large: Data,
    small: Data | None,
    repeats: int,
    timeout_s: float,
) -> list[Result | Absent]:
    """Measure all contenders that are here, turn by turn.

    Args:
        small: a run over it is start-up, and subtracted; None leaves start-up in what is measured.

    Raises:
        WrongAnswer, RuntimeError: see there.
    """
    present = [each for each in contenders if isinstance(each, Contender)]
    measured: dict[str, list[tuple[float, Run]]] = {each.name: [] for each in present}
    for repeat in range(repeats):
        for each in present:
            print(f"{repeat + 1}/{repeats} {each.name}", file=sys.stderr, flush=True)
            measured[each.name].append(_net_cpu_s(each, large, small, timeout_s))
    return [
        each if isinstance(each, Absent) else result(each, measured[each.name])
        for each in contenders
    ]


def _net_cpu_s(
    contender: Contender, large: Data, small: Data | None, timeout_s: float
) -> tuple[float, Run]:
    """CPU seconds per million records without start-up, and the run over all records."""
    done = _verified(contender, large, timeout_s)
    if contender.tells_cpu:
        return float(_printed(done.output, "CPU")[0][0]) * 1e6 / large.records, done
    if small is None:
        return done.cpu_s * 1e6 / large.records, done
    start = _verified(contender, small, timeout_s)
    return (done.cpu_s - start.cpu_s) * 1e6 / (large.records - small.records), done


def _verified(contender: Contender, data: Data, timeout_s: float) -> Run:
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as folder:
        command = contender.command(data, Path(folder))
        done = run(command, contender.environment, timeout_s)
        answer = contender.answer(done.output, Path(folder))
    if answer != data.answer:
        raise WrongAnswer(
            f"{contender.name} over {data.records} records: {answer}, right is {data.answer}\n"
            f"{done.output[-2000:]}"
        )
    return done


def result(contender: Contender, measured: Sequence[tuple[float, Run]]) -> Result:
    """Of repeats: net CPU seconds per million records, and the run over all records."""
    runs = [run for _, run in measured]
    return Result(
        name=contender.name,
        cpu_s_per_million=Repeats(tuple(cpu_s for cpu_s, _ in measured)),
        total_cpu_s=median(run.cpu_s for run in runs),
        wall_s=median(run.wall_s for run in runs),
        pss_peak_bytes=max(run.pss_peak_bytes for run in runs),
        note=contender.note,
    )


def used(results: Sequence[Result | Absent]) -> dict[str, Repeats]:
    """CPU a million records of those that ran, by name."""
    return {each.name: each.cpu_s_per_million for each in results if isinstance(each, Result)}


def printed_answer(output: str, folder: Path) -> Answer:
    """From lines `ANSWER count sum`, one from each process that had a share."""
    shares = _printed(output, "ANSWER")
    return sum(int(share[0]) for share in shares), sum(int(share[1]) for share in shares)


def _printed(output: str, what: str) -> list[list[str]]:
    """The words after `what` of each line that begins with it.

    Raises:
        WrongAnswer: no line does.
    """
    found = [line.split()[1:] for line in output.splitlines() if line.startswith(f"{what} ")]
    if not found:
        raise WrongAnswer(f"no line {what} in:\n{output[-2000:]}")
    return found


def report(title: str, results: Sequence[Result | Absent], unit: str) -> dict[str, Any]:
    """Print a table, with ratios to the contender `unit`; the same for JSON."""
    base = used(results).get(unit)
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("program")
    for heading in (f"CPU / {unit}", "CPU s/M", "low .. high", "all CPU s", "wall s", "PSS MB"):
        table.add_column(heading, justify="right")
    table.add_column("note")
    rows = []
    for each in results:
        if isinstance(each, Absent):
            table.add_row(each.name, *["-"] * 6, each.note)
            rows.append(asdict(each))
            continue
        cpu = each.cpu_s_per_million
        ratio = cpu.over(base)[0] if base else None
        table.add_row(
            each.name,
            number(ratio) if base else "-",
            number(None if cpu.too_noisy else cpu.typical, 3),
            f"{cpu.best:.3f} .. {max(cpu.values):.3f}",
            f"{each.total_cpu_s:.2f}",
            f"{each.wall_s:.2f}",
            f"{each.pss_peak_bytes / 1e6:.0f}",
            each.note,
        )
        rows.append({**asdict(each), "cpu_s_per_million": cpu.values, "ratio": ratio})
    Console(width=120).print(table)
    return {"title": title, "unit": unit, "load_average": os.getloadavg(), "results": rows}
