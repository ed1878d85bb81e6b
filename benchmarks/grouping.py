"""Sums by key over many groups: `python -m benchmarks.grouping [--rows 20000000] [--keys 1000000]`

The job reads Parquet in columns, adds up a global window by key, exactly once with its state log
on disk, and writes the sums as Parquet. DuckDB and Spark do the same with `GROUP BY`, over whole
tables and with nothing kept. CPU is of whole process trees without their start; that of Spark is of
a second run in one session.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from benchmarks import data, onyx_run
from benchmarks.data import Answer, Data
from benchmarks.figures import Measured, Options, parser, run
from benchmarks.harness import Absent, Contender, compare, report
from benchmarks.onyx_ways import OUT
from benchmarks.peers import CODE, CONTENDERS, absent, by_name, spark_environment
from benchmarks.workload import REPEATS, SLOW, TIMEOUT_S, Goal, figures

ROWS = (20_000_000, 2_000_000, 5_000)
KEYS = (1_000_000, 100_000, 500)
FEW = (1_000, 1_000, 0)
"""All by size."""
VALUES = 97
GOALS = (
    Goal("onyx-1", "duckdb", 4.0, "one process"),
    Goal("onyx-1", "spark", 0.35, "one process"),
)


def rows(count: int, keys: int) -> Data:
    """Files of so many rows with random keys, made at the first use."""
    folder = data.ROOT / f"grouping-{count}-{keys}"
    path = folder / "answer.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(data.SEED)
        key, value = random.integers(0, keys, count), np.arange(count) % VALUES
        half = -(-count // data.FILES)
        for file in range(data.FILES):
            part = slice(file * half, (file + 1) * half)
            table = pa.table({"k": key[part], "v": value[part]})
            pq.write_table(table, folder / f"part-{file}.parquet", row_group_size=data.ROW_GROUP)
        path.write_text(json.dumps([len(np.unique(key)), int(value.sum())]))
    groups, total = json.loads(path.read_text())
    return Data(folder, count, (groups, total))


def contenders() -> dict[str, Contender | Absent]:
    """By name."""
    ours = [
        Contender(f"onyx-{count}", partial(_onyx, count), written, CODE, f"processes: {count}")
        for count in (1, 3)
    ]
    return by_name(*ours, _duckdb(), _spark())


def _duckdb() -> Contender | Absent:
    if not importlib.util.find_spec("duckdb"):
        return absent("duckdb", "pip install duckdb")
    return Contender("duckdb", partial(_theirs, "duckdb"), written, CODE, "whole tables")


def _spark() -> Contender | Absent:
    if not importlib.util.find_spec("pyspark"):
        return absent("spark", "pip install 'onyx-on-kubernetes[spark]'")
    command, note = partial(_theirs, "spark"), "whole tables, local[1], warm"
    return Contender("spark", command, written, spark_environment(), note, tells_cpu=True)


def _onyx(processes: int, data: Data, folder: Path) -> Sequence[str]:
    job = onyx_run.manifest("grouping.yaml")
    read, gather, write = job["spec"]["catalog"]
    for entry in (read, gather, write):
        entry["nPeers"] = processes
    read["options"]["path"] = data.pattern + ".parquet"
    write["options"]["path"] = str(folder / OUT)
    return onyx_run.command(job, folder, (), processes)


def _theirs(engine: str, data: Data, folder: Path) -> Sequence[str]:
    program = str(CONTENDERS / "grouping.py")
    return [sys.executable, program, engine, str(data.folder), str(folder / OUT)]


def written(output: str, folder: Path) -> Answer:
    """How many sums there are, and their sum."""
    sums = ds.dataset(folder / OUT, format="parquet").to_table(columns=["state"])["state"]
    return len(sums), int(np.sum(sums.to_numpy()))


def measure(options: argparse.Namespace) -> Measured:
    every = contenders()
    few = [name for name in every if name not in SLOW]
    names = options.contender or (every, few, few)[options.size]
    results = compare(
        [every[name] for name in names],
        rows(options.rows, options.keys),
        rows(options.few_rows, options.keys) if options.few_rows else None,
        options.repeats,
        TIMEOUT_S,
    )
    title = f"Sums of {options.rows:,} rows by {options.keys:,} keys"
    return Measured(figures(GOALS, results), report(title, results, "duckdb"))


def options() -> Options:
    made = parser(__doc__)
    made.add_argument("--contender", action="append", help="only this; repeatable")
    made.sized("--rows", *ROWS)
    made.sized("--keys", *KEYS)
    made.sized("--few-rows", *FEW, "to tell the start-up; 0 leaves it in")
    made.sized("--repeats", *REPEATS)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
