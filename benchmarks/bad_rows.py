"""What a few bad rows cost in columns: `python -m benchmarks.bad_rows`

CPU of the same records with 1 in 250 bad to that with none: of reading CSV and JSON Lines, where a
bad record is too short, or holds text where a number should be; and of a whole job, in which bad
records are dead letters. Both kinds alternate, so that a busy machine
disturbs both. CPU of dicts is shown beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarks import onyx_run
from benchmarks.figures import Figure, Measured, Options, Repeats, parser, ratio, run
from msgspec.structs import replace

from onyx.base.seams import SystemClock
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.context import context_of
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.protocol import START
from onyx.program.plugin_forms import segments_reader
from onyx.rights import EVERYTHING

EVERY = 250
GOAL_READING, GOAL_JOB = 3.0, 1.5
BATCH_SIZE = 10_000
TIMEOUT_S = 300.0
BatchFormat = Literal["arrow", "dicts"]
FORMATS: tuple[BatchFormat, ...] = ("arrow", "dicts")
TYPES = {"id": "int", "km": "float", "hours": "float", "paid": "bool"}


def csv_lines(rows: int, every: int) -> str:
    """Trips; each `every`-th is too short, or has a word for its number, in turn."""
    lines = ["id,at,km,hours,paid,name,city,note"]
    for n in range(rows):
        whole = f"{n},2026-01-{n % 28 + 1:02}T{n % 24:02}:00:00Z,{n / 8},{n % 7 + 0.5},true"
        if every and n % (2 * every) == every - 1:
            whole = whole.replace(f"{n / 8}", "far", 1)
        line = f"{whole},name {n % 1000},city {n % 50},nothing to say about it"
        lines.append(whole if every and n % (2 * every) == 2 * every - 1 else line)
    return "\n".join(lines) + "\n"


def json_lines(rows: int, every: int) -> str:
    """The same as objects; each `every`-th is cut off, or has a word for its number."""
    lines = []
    for n in range(rows):
        km: Any = n / 8
        if every and n % (2 * every) == every - 1:
            km = "far"
        trip = {"id": n, "at": f"2026-01-{n % 28 + 1:02}T{n % 24:02}:00:00Z", "km": km,
                "hours": n % 7 + 0.5, "paid": True, "name": f"name {n % 1000}",
                "city": f"city {n % 50}", "note": "nothing to say about it"}  # fmt: skip
        line = json.dumps(trip)
        lines.append(line[:40] if every and n % (2 * every) == 2 * every - 1 else line)
    return "\n".join(lines) + "\n"


def reading_s(rows: int, path: Path, batch_format: BatchFormat) -> float:
    """CPU seconds of reading a file as a task does."""
    entry = CatalogEntry("read", "input", plugin="files", batch_format=batch_format)
    context = context_of(
        Job("bench", (("read", "none"),), (entry,)), entry, JobId("b"), PeerId("b"), GroupId("b"),
        SystemClock(), lambda name: print,
    )  # fmt: skip
    types = TYPES if path.suffix == ".csv" else {}
    options = FilesInputOptions(path=str(path), types=types, on_bad_record="segment")  # type: ignore[arg-type]
    plugin = FilesInput(replace(context, rights=EVERYTHING), options)
    reader = segments_reader(plugin.open(str(path), START), batch_format == "arrow")
    began, count = time.process_time(), 0
    while not reader.exhausted():
        count += len(reader.read(BATCH_SIZE))
    used = time.process_time() - began
    reader.close()
    assert count == rows, f"{count} records of {rows}"
    return used


def job_s(path: Path, batch_format: BatchFormat) -> float:
    """CPU seconds of the worker in a whole job over a file."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        job = onyx_run.manifest("bad-rows.yaml")
        spec = job["spec"]
        options = spec["catalog"][0]["options"]
        options["path"] = str(path)
        if path.suffix == ".csv":
            options["types"] = TYPES
        for entry in spec["catalog"][:2]:
            entry["batchFormat"] = batch_format
        spec["catalog"][1]["fn"] = f"bench_bad_rows:{batch_format}_with_speed"
        for entry in spec["catalog"][2:]:
            entry["options"]["path"] = f"{name}/{entry['name']}"
        spec["lifecycles"][0]["options"] = {"folder": name}
        modules = ["bench_bad_rows", "bench_probe"]
        onyx_run.finish(onyx_run.start(onyx_run.command(job, Path(name), modules)), TIMEOUT_S)
        found = [json.loads(each.read_text()) for each in Path(name).glob("span-*.json")]
        return float(sum(each["cpu_s"] for each in found))


def compared(
    what: str,
    goal: float,
    spent: Callable[[Path, BatchFormat], float],
    paths: dict[str, Path],
    repeats: int,
) -> Figure:
    """The figure of one kind of work, over the clean file and the one with bad rows."""
    runs: dict[tuple[str, str], list[float]] = {}
    for repeat in range(repeats):
        for rows, path in paths.items():
            for batch_format in FORMATS:
                runs.setdefault((rows, batch_format), []).append(spent(path, batch_format))
        shown = ", ".join(f"{' '.join(key)} {found[-1]:.2f} s" for key, found in runs.items())
        print(f"{repeat + 1}/{repeats} {what}: {shown}", file=sys.stderr, flush=True)
    used = {key: Repeats(tuple(found)) for key, found in runs.items()}
    clean, bad = ("clean", "arrow"), ("bad", "arrow")
    note = (
        f"{used[clean].typical:.2f} s become {used[bad].typical:.2f}; "
        f"dicts {used['clean', 'dicts'].typical:.2f} and {used['bad', 'dicts'].typical:.2f}"
    )
    name = f"{what}: columns with 1 in {EVERY} bad to none"
    return ratio(name, used[bad], used[clean], goal, note)


def measure(options: argparse.Namespace) -> Measured:
    rows, repeats = options.rows, options.repeats
    figures = []
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        for form, lines in (("csv", csv_lines), ("jsonl", json_lines)):
            paths = {kind: Path(name, f"{kind}.{form}") for kind in ("clean", "bad")}
            for kind, path in paths.items():
                path.write_text(lines(rows, EVERY if kind == "bad" else 0))
            figures += [
                compared(f"reading {form}", GOAL_READING, partial(reading_s, rows), paths, repeats),
                compared(f"job over {form}", GOAL_JOB, job_s, paths, repeats),
            ]
    return Measured(figures)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--rows", 200_000, 40_000, 1_000)
    made.sized("--repeats", 3, 1, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
