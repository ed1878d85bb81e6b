"""`onyx run` of a trivial job, from command to exit, and where the time goes.

    python -m benchmarks.startup [--quick] [--json FILE]

The total is of the command itself. The parts are measured in processes of their own, which do what
the command does, one step after the other; they need not add up to the total.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks import onyx_run
from benchmarks.figures import Figure, Measured, Options, Size, parser, run

from onyx.processes.forking import WORKER

GOAL_S = 4.0
TIMEOUT_S = 60.0
PROCESSES = (1, 4)
PARTS = """
import json, sys, tempfile, threading, time
marks = [time.perf_counter()]
def mark(): marks.append(time.perf_counter())
import onyx.cli.command_table, onyx.cli.commands.run; mark()
from msgspec.structs import replace
from pathlib import Path
from onyx import api
from onyx.processes.worker_process import Worker
from onyx.model.parsing.job import parse_manifest
from onyx.settings import Settings
job = parse_manifest(Path(sys.argv[1]).read_bytes(), "job")
folder = tempfile.TemporaryDirectory()
env = api.start_env(Settings(modules=("bench_probe",)), Path(folder.name)); mark()
worker = Worker(env.settings, 3); worker.start(); mark()
client = api.connect(env.settings); client.__enter__(); mark()
done = client.submit(job).job
ended = threading.Event()
def look(_, replica):
    if done in replica.completed_jobs or done in replica.killed_jobs: ended.set()
with client.follow(look): assert ended.wait(60)
mark()
client.__exit__(None, None, None); mark()
worker.stop(); mark()
api.shutdown_env(env); mark()
print(json.dumps([b - a for a, b in zip(marks, marks[1:])]))
"""
NAMES = ("imports", "log", "join", "client", "job", "client ends", "worker leaves",
         "log ends")  # fmt: skip


def total_s(folder: Path, processes: int) -> float:
    peers = max(3, processes)
    command = onyx_run.command(onyx_run.manifest("trivial.yaml"), folder, [], processes)
    started_s = time.perf_counter()
    onyx_run.finish(onyx_run.start([*command, "--peers", str(peers)]), TIMEOUT_S)
    return time.perf_counter() - started_s


def parts_s(folder: Path) -> dict[str, float]:
    onyx_run.command(onyx_run.manifest("trivial.yaml"), folder, [])
    process = onyx_run.start([sys.executable, "-c", PARTS, str(folder / "job.yaml")])
    output = onyx_run.finish(process, TIMEOUT_S)
    return dict(zip(NAMES, json.loads(output.splitlines()[-1]), strict=True))


def heaviest_imports() -> list[tuple[str, float]]:
    """Modules of a worker with the longest imports, all that they import included, in ms."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {WORKER}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    rows = [line.removeprefix("import time:").split("|") for line in text.splitlines()[1:]]
    found = [(name.strip(), int(whole) / 1000) for _, whole, name in rows]
    return sorted(found, key=lambda row: -row[1])[:25]


def measure(options: argparse.Namespace) -> Measured:
    figures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        totals: dict[int, list[float]] = {
            count: [] for count in PROCESSES[: 2 if options.size is Size.FULL else 1]
        }
        parts: list[dict[str, float]] = []
        for _ in range(options.repeats):
            for processes, times in totals.items():
                times.append(total_s(folder, processes))
            parts.append(parts_s(folder))
    middle = {part: median(each[part] for each in parts) for part in NAMES}
    for processes, times in totals.items():
        several = "" if processes == 1 else f", {processes} worker processes"
        note = "" if several else ", ".join(f"{part} {s:.2f}" for part, s in middle.items())
        figures.append(
            Figure(
                f"`onyx run` of a trivial job{several}", median(times), "s", GOAL_S,
                best=min(times), note=note,
            )
        )  # fmt: skip
    imports = heaviest_imports()
    details = {"totals_s": totals, "parts_s": middle, "imports_ms": imports}
    for module, ms in imports:
        print(f"{ms:>8.1f} ms  {module}")
    return Measured(figures, details)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--repeats", 5, 1, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
