"""Windows by Spark: what spooling costs a peer, and a stage against the same aggregation by hand.

    python -m benchmarks.spark_windows [--rows 20000000] [--keys 1000000] [--master local[2]]

Sums by key and extent. *Spooling*: columns become rows of parts and parts become files, on one
thread; *folding* is the same batches into the states of peers, for comparison. *Stage* is the plan
of a firing over the parts, *by hand* is `groupBy` over the same Parquet; both in turns in one warm
session, each writes its result to Parquet. CPU is user and system time of all processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.figures import Figure, Measured, parser, run
from benchmarks.peers import CONTENDERS, spark_environment

from onyx.flow.columns import Columns
from onyx.flow.grouping import shard_of
from onyx.flow.key_codes import KeyCodes
from onyx.model.job import CatalogEntry, Job, Trigger, Window
from onyx.spark.windows.files import SpoolFolder
from onyx.spark.windows.firings import Spark
from onyx.spark.windows.window import SparkWindow
from onyx.windows.coded import GroupKeys
from onyx.windows.compile import compile_windows
from onyx.windows.task_windows import TaskWindows

ROWS, ROWS_QUICK = 20_000_000, 1_000_000
KEYS, KEYS_QUICK = 1_000_000, 50_000
BATCH, PART = 10_000, 500_000
EXTENTS = 8
FOLDED_MAX = 2_000_000
"""Rows that are folded on a peer: their states fill its memory."""
GOAL_STAGE = 0.8
GOAL_SPOOLING = 1.0
TIMEOUT_S = 1_800.0


def windows(engine: str, folder: Path) -> TaskWindows:
    """A window of `EXTENTS` extents over the rows."""
    job = Job(
        "bench",
        (("read", "gather"),),
        (CatalogEntry("read", "input", 1, watermark_key="t"),
         CatalogEntry("gather", "reduce", 1, group_by_key="k")),
        windows=(Window("w", "gather", "fixed", ("sum", "v"), engine=engine, window_key="t",
                        range=(1_000, "elements")),),
        triggers=(Trigger("w", "watermark", post_evictor=("all",), sync="m:f"),),
    )  # fmt: skip
    compiled = compile_windows(job, "gather", {}.__getitem__)
    assert compiled is not None

    def make(each: Any, grouped: bool, shards: Any) -> SparkWindow:
        def nothing(*arguments: Any) -> Any:
            raise AssertionError("nothing fires")

        spark = Spark(nothing, nothing, "", {}, "", lambda: True)
        return SparkWindow(each, grouped, shards, SpoolFolder(folder), spark, 1_000)

    return TaskWindows(compiled, shard_of, make_elsewhere=make)


def batches(rows: int, keys: int) -> Iterator[Columns]:
    random = np.random.default_rng(7)
    for first in range(0, rows, BATCH):
        numbers = np.arange(first, min(first + BATCH, rows))
        yield Columns.of(
            pa.record_batch(
                {
                    "k": random.integers(0, keys, len(numbers)),
                    "v": numbers % 97,
                    "t": numbers * (EXTENTS * 1_000) // rows,
                }
            )
        )


def fed(engine: str, rows: int, keys: int, folder: Path) -> float:
    """Feed all rows, with a chunk each `PART` rows; CPU seconds a million rows."""
    made, used, waiting = windows(engine, folder), 0.0, 0
    group_keys = GroupKeys()
    for batch in batches(rows, keys):
        before = time.process_time()
        made.add(batch, group_keys.of(KeyCodes.of_column(batch, "k")), 0)
        waiting += len(batch)
        if waiting >= PART:
            waiting = 0
            made.take_changes()
            for each in made.take_files():
                each.write()
        used += time.process_time() - before
    made.take_changes()
    for each in made.take_files():
        each.write()
    return used / rows * 1e6


def aggregated(folder: Path, master: str) -> dict[str, Any]:
    """CPU seconds of the stage and by hand.

    Raises:
        RuntimeError: they differ in what they found.
    """
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [sys.executable, str(CONTENDERS / "spark_windows.py"), str(folder), out, master],
            env=spark_environment(), stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True,
        )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["answers"]["hand"] != found["answers"]["stage"]:
        raise RuntimeError(f"different answers: {found['answers']}")
    return found


def measure(options: argparse.Namespace) -> Measured:
    rows = ROWS_QUICK if options.quick else options.rows
    keys = KEYS_QUICK if options.quick else options.keys
    with tempfile.TemporaryDirectory() as folder:
        spooling = fed("spark", rows, keys, Path(folder) / "rows")
        folding = fed("peers", min(rows, FOLDED_MAX), keys, Path(folder))
        found = aggregated(Path(folder), options.master)
    hand, stage = (found["cpu_s"][way] / rows * 1e6 for way in ("hand", "stage"))
    note = f"{rows:,} rows, {keys:,} keys; a million rows take"
    figures = [
        Figure("throughput of the stage / by hand", hand / stage, "x", GOAL_STAGE, at_least=True,
               note=f"{note} {stage:.2f} CPU s, by hand {hand:.2f}"),
        Figure("spooling / folding on a peer, CPU", spooling / folding, "x", GOAL_SPOOLING,
               note=f"{note} {spooling:.2f} CPU s, folding {folding:.2f}"),
    ]  # fmt: skip
    return Measured(figures, {"rows": rows, "keys": keys, **found})


if __name__ == "__main__":
    made = parser(__doc__)
    made.add_argument("--rows", type=int, default=ROWS)
    made.add_argument("--keys", type=int, default=KEYS)
    made.add_argument("--master", default="local[2]")
    run(__doc__, measure, made)
