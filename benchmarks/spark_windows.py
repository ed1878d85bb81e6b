"""Windows by Spark: spooling, a stage, and a whole job, against the same aggregation by hand.

    python -m benchmarks.spark_windows [--rows 10000000] [--keys 1000000] [--master local[2]]

Sums by key, of a global and of a sliding window, where each row is in two extents. *By hand* is
`groupBy` in PySpark over the Parquet files that the job reads. *Spooling*: columns become rows of
parts and parts become files, on one thread. *Stage* is the plan of a firing over the parts; it and
the one by hand take turns in one warm session. *Whole job* is `onyx run` from the files to Parquet
again, with `emit: rows`, and the one by hand a program; both with their start. CPU is user
and system time of all processes, memory that of the worker and its processes but for the JVM.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from benchmarks import harness, onyx_run
from benchmarks.figures import Figure, Measured, Options, Repeats, parser, ratio, run
from benchmarks.peers import CONTENDERS, spark_environment

from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.groups.keys import shard_of
from onyx.keystate.coded import GroupKeys
from onyx.model.job import CatalogEntry, Job, Trigger, Window
from onyx.processes.child import NAME
from onyx.spark.windows.spool import Spool
from onyx.spark.windows.window import SparkRuns, SparkWindow
from onyx.storage.opening import location_of
from onyx.windows.compile import compile_windows
from onyx.windows.task_windows import TaskWindows

ROWS = (10_000_000, 500_000, 5_000)
KEYS = (1_000_000, 50_000, 500)
"""By size."""
BATCH, PART, FILE = 10_000, 500_000, 5_000_000
SLIDES = 2
"""Of all rows; an extent has two."""
SLIDE = 500
RUNS, RUNS_FEW, FEW_FROM = 4, 3, 50_000_000
"""Of the stage, the first of which warms the JVM; fewer from so many rows on."""
GOAL_STAGE, GOAL_WHOLE = 1.18, 1.3
GOAL_SPOOLING_S, GOAL_MIB = 0.5, 1024.0
TIMEOUT_S = 7_200.0
CONTENDER = str(CONTENDERS / "spark_windows.py")


@dataclass(frozen=True)
class Shape:
    """One of the windows."""

    name: str
    by_hand: str
    """As `contenders/spark_windows.py` takes it."""
    keys: dict[str, Any]
    """Of the manifest."""
    window: dict[str, Any]
    """Of `Window`."""


SHAPES = (
    Shape("global", "global", {"type": "global"}, {"type": "global"}),
    Shape(
        "sliding",
        f"sliding:{2 * SLIDE}:{SLIDE}",
        {"type": "sliding", "windowKey": "t", "range": [2 * SLIDE, "elements"],
         "slide": [SLIDE, "elements"]},
        {"type": "sliding", "window_key": "t", "range": (2 * SLIDE, "elements"),
         "slide": (SLIDE, "elements")},
    ),
)  # fmt: skip


def write_source(rows: int, keys: int, folder: Path) -> None:
    """Rows with a random key, a value and a time that rises."""
    random = np.random.default_rng(7)
    folder.mkdir()
    for file, first in enumerate(range(0, rows, FILE)):
        numbers = np.arange(first, min(first + FILE, rows))
        table = pa.table(
            {
                "k": random.integers(0, keys, len(numbers)),
                "v": numbers % 97,
                "t": numbers * (SLIDES * SLIDE) // rows,
            }
        )
        pq.write_table(table, folder / f"rows-{file:03}.parquet", row_group_size=PART)


def windows(shape: Shape, folder: Path) -> TaskWindows:
    job = Job(
        "bench",
        (("read", "gather"),),
        (CatalogEntry("read", "input", 1, watermark_key="t"),
         CatalogEntry("gather", "reduce", 1, group_by_key="k")),
        windows=(Window("w", "gather", aggregation=("sum", "v"), engine="spark", **shape.window),),
        triggers=(Trigger("w", "watermark", post_evictor=("all",), sync="m:f"),),
    )  # fmt: skip
    compiled = compile_windows(job, "gather", _none_needed)
    assert compiled is not None

    def make(each: Any, grouped: bool, shards: Any) -> SparkWindow:
        def nothing(*arguments: Any, **options: Any) -> Any:
            raise AssertionError("nothing fires")

        spark = SparkRuns(nothing, nothing, "", {}, "", lambda: True)
        return SparkWindow(each, grouped, shards, Spool(location_of(str(folder))), spark, 1_000)

    return TaskWindows(compiled, shard_of, make_elsewhere=make)


def _none_needed(name: str) -> Callable[..., Any]:
    raise KeyError(name)


def batches(source: Path) -> Iterator[Columns]:
    for path in sorted(source.iterdir()):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH):
                yield Columns.of(batch)


def spooled(shape: Shape, source: Path, folder: Path) -> float:
    """Spool all rows, with a chunk each `PART` rows; CPU seconds without reading."""
    made, used, waiting = windows(shape, folder), 0.0, 0
    group_keys = GroupKeys()
    for batch in batches(source):
        before = time.process_time()
        made.add(batch, group_keys.of(KeyCodes.of_column(batch, "k")), 0)
        waiting += len(batch)
        if waiting >= PART:
            waiting = 0
            _cut(made)
        used += time.process_time() - before
    before = time.process_time()
    _cut(made)
    return used + time.process_time() - before


def _cut(made: TaskWindows) -> None:
    made.take_changes()
    for each in made.take_files():
        each.write()


def staged(shape: Shape, source: Path, parts: Path, out: Path, options: Any) -> dict[str, Any]:
    """CPU seconds of the stage and by hand.

    Raises:
        RuntimeError: they differ in what they found.
    """
    runs = RUNS_FEW if options.rows >= FEW_FROM else RUNS
    command = [sys.executable, CONTENDER, "stage", source, parts, out, options.master]
    done = subprocess.run(
        [*map(str, command), shape.by_hand, str(runs)],
        env=spark_environment(), stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["answers"]["hand"] != found["answers"]["stage"]:
        raise RuntimeError(f"different answers: {found['answers']}")
    return found


class Memory:
    """Of the worker of a job and the processes below it but for the JVM, while the block runs: the
    highest sum of resident memory in MiB, and when."""

    def __enter__(self) -> Memory:
        self.peak_mib, self.samples = 0.0, list[tuple[float, float]]()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        started = time.monotonic()
        while not self._ended.wait(0.5):
            mib = sum(map(_rss_mib, psutil.Process().children(recursive=True)))
            self.peak_mib = max(self.peak_mib, mib)
            self.samples.append((round(time.monotonic() - started, 1), round(mib, 1)))


def _rss_mib(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error, IndexError):
        is_worker = process.name() == NAME or "onyx.spark.child" in " ".join(process.cmdline())
        return float(process.memory_info().rss / 2**20) if is_worker else 0.0
    return 0.0


def whole(shape: Shape, source: Path, folder: Path, options: Any) -> tuple[harness.Run, Memory]:
    """Run the job."""
    job = onyx_run.manifest("spark-window.yaml")
    spec = job["spec"]
    spec["spark"]["master"] = options.master
    spec["catalog"][0]["options"]["path"] = f"{source}/*.parquet"
    spec["catalog"][2]["options"]["path"] = f"{folder}/out"
    spec["windows"][0] |= shape.keys
    command = onyx_run.command(job, folder, ())
    with Memory() as memory:
        done = harness.run(command, onyx_run.ENVIRONMENT, TIMEOUT_S)
    return done, memory


def whole_by_hand(shape: Shape, source: Path, out: Path, options: Any) -> harness.Run:
    command = [sys.executable, CONTENDER, "whole", source, out, options.master, shape.by_hand]
    return harness.run([*map(str, command)], spark_environment(), TIMEOUT_S)


def answer(folder: Path, column: str) -> list[int]:
    """How many rows a result has, and their sum."""
    found = [0, 0]
    for batch in ds.dataset(folder, format="parquet").to_batches(columns=[column]):
        found[0] += len(batch)
        found[1] += int(np.sum(batch.column(0).to_numpy()))
    return found


def measured(shape: Shape, source: Path, folder: Path, options: Any) -> tuple[list[Figure], Any]:
    """All figures of one window.

    Raises:
        RuntimeError: the job and the one by hand differ in what they found.
    """
    millions = options.rows / 1e6
    note = f"{options.rows:,} rows, {options.keys:,} keys; a million rows take"
    spooling_s = spooled(shape, source, folder / "parts") / millions
    found = staged(shape, source, folder / "parts", folder / "staged", options)
    hand_s, stage_s = (
        Repeats(tuple(found["cpu_s"][way])).per(millions) for way in ("hand", "stage")
    )
    for each in ("parts", "staged"):
        shutil.rmtree(folder / each)
    by_hand = whole_by_hand(shape, source, folder / "whole", options)
    wanted = answer(folder / "whole" / "hand", "int")
    shutil.rmtree(folder / "whole")
    (folder / "job").mkdir()
    job, memory = whole(shape, source, folder / "job", options)
    got = answer(folder / "job" / "out", "state")
    if got != wanted:
        raise RuntimeError(f"the job has {got}, by hand there is {wanted}\n{job.output[-2000:]}")
    shutil.rmtree(folder / "job")
    figures = [
        Figure(f"{shape.name}: spooling", spooling_s, "CPU s/M", GOAL_SPOOLING_S, note=note[:-5]),
        ratio(f"{shape.name}: CPU of the stage / by hand", stage_s, hand_s, GOAL_STAGE,
              f"{note} {stage_s.typical:.2f} CPU s, by hand {hand_s.typical:.2f}"),
        ratio(f"{shape.name}: CPU of the whole job / by hand", Repeats((job.cpu_s,)),
              Repeats((by_hand.cpu_s,)), GOAL_WHOLE,
              f"{job.cpu_s:.0f} CPU s in {job.wall_s:.0f} s, by hand {by_hand.cpu_s:.0f} in "
              f"{by_hand.wall_s:.0f} s; {wanted[0]:,} groups"),
        Figure(f"{shape.name}: memory of the worker without JVM", memory.peak_mib, "MiB", GOAL_MIB),
    ]  # fmt: skip
    details = {**found, "whole_s": [job.cpu_s, by_hand.cpu_s], "memory": memory.samples}
    return figures, details


def measure(options: argparse.Namespace) -> Measured:
    figures: list[Figure] = []
    details: dict[str, Any] = {"rows": options.rows, "keys": options.keys}
    with tempfile.TemporaryDirectory(prefix="onyx-bench-", dir=options.folder) as name:
        source = Path(name) / "source"
        write_source(options.rows, options.keys, source)
        for shape in SHAPES:
            if options.only in (None, shape.name):
                folder = Path(name) / shape.name
                folder.mkdir()
                made, details[shape.name] = measured(shape, source, folder, options)
                figures += made
    return Measured(figures, details)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--rows", *ROWS)
    made.sized("--keys", *KEYS)
    made.add_argument("--master", default="local[2]")
    made.add_argument("--only", choices=[shape.name for shape in SHAPES])
    made.add_argument("--folder", default=os.environ.get("TMPDIR"), help="for all files")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
