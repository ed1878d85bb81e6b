"""Workloads a and c in columns over 100 million rows: does a row cost what it costs over few, and
does memory stay flat? `python -m benchmarks.scale [--rows 100000000]`

One process, rows from two Parquet files that are read side by side; their names and keys repeat, so
that 100 million rows are some 1.5 GB. CPU is that of the worker from the start of its first task to
the end of its last. The ratio is of CPU a row, over all rows and over the few; memory is sampled as
in `memory.py`. Growth counts from the end of the first quarter of the time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks import data, memory, onyx_run
from benchmarks.data import Answer, Data
from benchmarks.figures import Figure, Measured, Options, Repeats, parser, ratio, run
from benchmarks.harness import WrongAnswer
from benchmarks.onyx_ways import OUT, SHARES, emitted, shares

BLOCK = 250_000
"""Rows that a file gets at a time, at most."""
NAMES = 10_000
GOAL_RATIO = 1.1
TIMEOUT_S = 1_800.0


def segments(first: int, last: int) -> tuple[pa.Table, Answer]:
    """Rows of workload a, and how many of them have an odd `n`, and the sum of these and one."""
    numbers = np.arange(first, last)
    random = np.random.default_rng([data.SEED, first])
    n = random.integers(0, 1000, len(numbers))
    names = pa.array([f"user-{number:06d}-abcdefgh" for number in range(NAMES)])
    name = names.take(pa.array(random.integers(0, NAMES, len(numbers))))
    odd = n[n % 2 == 1]
    return pa.table({"id": numbers, "name": name, "n": n}), (len(odd), int(odd.sum() + len(odd)))


class Minutes:
    """Rows of workload c: it keeps which minutes of keys it has made."""

    def __init__(self) -> None:
        self.found: set[int] = set()

    def __call__(self, first: int, last: int) -> tuple[pa.Table, Answer]:
        """The rows, and what they add to the answer."""
        numbers = np.arange(first, last)
        random = np.random.default_rng([data.SEED, first])
        key = random.integers(0, data.KEYS, len(numbers))
        early = random.integers(0, data.DISORDER_MS, len(numbers))
        ts = data.FIRST_MS + (numbers * data.EVENT_EVERY_MS).astype(np.int64) + early
        value = numbers % 100
        before = len(self.found)
        self.found.update(np.unique(ts // data.WINDOW_MS * data.KEYS + key).tolist())
        keys = pa.array([f"k{number}" for number in range(data.KEYS)]).take(pa.array(key))
        table = pa.table({"key": keys, "ts": ts, "v": value})
        return table, (len(self.found) - before, int(value.sum()))


def rows(name: str, make: Callable[[int, int], tuple[pa.Table, Answer]], count: int) -> Data:
    """The data set, made at its first use, a block at a time."""
    folder = data.ROOT / f"scale-{name}-{count}"
    path = folder / "answer.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_write(folder, make, count)))
    results, total = json.loads(path.read_text())
    return Data(folder, count, (results, total))


def _write(folder: Path, make: Callable[[int, int], tuple[pa.Table, Answer]], count: int) -> Answer:
    results = total = 0
    block = min(BLOCK, -(-count // data.FILES))
    writers: list[Any] = [None] * data.FILES
    for number, first in enumerate(range(0, count, block)):
        table, (more, added) = make(first, min(first + block, count))
        results, total = results + more, total + added
        file = number % data.FILES
        if writers[file] is None:
            target = folder / f"part-{file}.parquet"
            writers[file] = pq.ParquetWriter(target, table.schema, compression="zstd")
        writers[file].write_table(table)
    for writer in writers:
        writer.close()
    return results, total


# Runs


def measured(letter: str, rows: Data) -> memory.Watched:
    """A run of the workload in one process, its answer checked.

    Raises:
        WrongAnswer, RuntimeError: as they say.
    """
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        job = onyx_run.manifest(f"{letter}-columns.yaml")
        spec = job["spec"]
        for entry in spec["catalog"]:
            if entry.get("plugin") == "files":
                read = entry["type"] == "input"
                entry["options"]["path"] = rows.pattern if read else str(folder / OUT)
        (folder / SHARES).mkdir()
        calls = [{"task": "all", "calls": "bench_probe:span_calls", "options": {"folder": name}}]
        if letter == "a":
            options = {"folder": str(folder / SHARES)}
            calls += [{"task": "sink", "calls": "bench_tasks:calls", "options": options}]
        spec["lifecycles"] = calls
        modules = ["bench_probe", "bench_tasks", "bench_columns"]
        seen = memory.watched(job, folder, modules, TIMEOUT_S)
        answer = {"a": shares, "c": emitted}[letter]("", folder)
    if answer != rows.answer:
        raise WrongAnswer(f"{letter} over {rows.records:,} rows: {answer}, right is {rows.answer}")
    return seen


def figures(letter: str, options: argparse.Namespace) -> tuple[list[Figure], dict[str, Any]]:
    make = segments if letter == "a" else Minutes()
    many = rows(letter, make, options.rows)
    make = segments if letter == "a" else Minutes()
    few = rows(letter, make, options.few)
    first, whole, last = measured(letter, few), measured(letter, many), measured(letter, few)
    small = Repeats((first.span["cpu_s"], last.span["cpu_s"])).per(few.records / 1e6)
    large = Repeats((whole.span["cpu_s"],)).per(many.records / 1e6)
    grown = memory.growth_while_passing(whole.memory, whole.span)
    peak = max(mib for _, mib in whole.memory)
    note = (
        f"{large.typical:.3f} s a million over {many.records:,} rows, "
        f"{small.typical:.3f} over {few.records:,}"
    )
    found = [
        ratio(f"{letter}: CPU a row, many rows / few", large, small, GOAL_RATIO, note),
        Figure(f"{letter}: memory growth of the worker", grown, "MiB", memory.GOAL_MIB,
               note=f"peak {peak:.0f} MiB"),
    ]  # fmt: skip
    return found, {"memory": whole.memory, "state": whole.state, "span": whole.span}


def measure(options: argparse.Namespace) -> Measured:
    found: list[Figure] = []
    details: dict[str, Any] = {}
    for letter in options.workload or ("a", "c"):
        more, details[letter] = figures(letter, options)
        found += more
    return Measured(found, details)


def options() -> Options:
    made = parser(__doc__)
    made.add_argument("--workload", action="append", choices=["a", "c"], help="repeatable")
    made.sized("--rows", 100_000_000, 3_000_000, 20_000)
    made.sized("--few", 1_000_000, 500_000, 10_000)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
