"""What it costs to enrich columns from a table of a million rows: `python -m benchmarks.joins`

Segments get three columns of the row that a table has under their key; nine of ten find one, in no
order. *Join* is CPU of one thread for what a task does with a batch of 10,000 rows: with whole
numbers and text as keys, with versions, and with dicts in the place of columns. Beside it is
Polars on one thread, which joins each batch with the table, and all at once. *Job* is CPU of
a worker that reads Parquet, joins and drops, as rows a second, without the time in which the table
is read; the job without its join is beside it. All alternate.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks import onyx_run
from benchmarks.figures import Figure, Measured, Options, Repeats, parser, run

from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.joins.enrichment import Enrichment
from onyx.joins.table import Table

BATCH = 10_000
VERSIONS = 4
TIMEOUT_S = 300.0
GOAL_COLUMNS, GOAL_DICTS = 1_000_000.0, 200_000.0
SEED = 22


def keys(numbers: np.ndarray, kind: str) -> pa.Array:
    column = pa.array(numbers)
    if kind == "text":
        return pc.binary_join_element_wise("user-", column.cast(pa.string()), "")
    return column


def rows_of_table(many: int, kind: str) -> pa.RecordBatch:
    """The rows of the table, each key once, or with versions in turn."""
    numbers = np.random.default_rng(SEED).permutation(many)
    of_key = VERSIONS if kind == "versions" else 1
    return pa.record_batch(
        {
            "id": keys(numbers // of_key, kind),
            "since": pa.array(numbers % of_key * 1_000),
            "name": pc.binary_join_element_wise("name ", pa.array(numbers).cast(pa.string()), ""),
            "city": pa.array([f"city {n}" for n in range(100)]).take(pa.array(numbers % 100)),
            "score": pa.array(numbers / 7),
        }
    )


def batches(many: int, size: int, count: int, kind: str) -> Iterator[pa.RecordBatch]:
    """Batches of segments, of which one in ten finds nothing."""
    random = np.random.default_rng(SEED + 1)
    of_key = VERSIONS if kind == "versions" else 1
    for number in range(count):
        users = random.integers(0, many * 10 // 9 // of_key, size)
        yield pa.record_batch(
            {
                "user": keys(users, kind),
                "time": pa.array(random.integers(0, VERSIONS * 1_000, size)),
                "n": pa.array(np.arange(number * size, number * size + size)),
            }
        )


def join_with(rows: pa.RecordBatch, kind: str) -> Enrichment:
    """The join with a table that is built for it."""
    if kind == "versions":
        versioned = Table("users", Columns(rows), ["id"], "since")
        return Enrichment(lambda: versioned, ("user",), at="time")
    table = Table("users", Columns(rows), ["id"])
    return Enrichment(lambda: table, ("user",), columns=("name", "city", "score"))


def joined_s(join: Enrichment, given: Sequence[Segments]) -> float:
    began = time.process_time()
    for batch in given:
        join.of(batch)
    return time.process_time() - began


def polars_s(table: pa.RecordBatch, given: Sequence[pa.RecordBatch], at_once: bool) -> float:
    """The same by Polars, over each batch or over all of them."""
    import polars as pl

    users = pl.from_arrow(table).drop("since")  # type: ignore[union-attr]
    frames = [pl.from_arrow(each) for each in given]
    if at_once:
        frames = [pl.concat(frames)]  # type: ignore[type-var]
    began = time.process_time()
    for frame in frames:
        frame.join(users, left_on="user", right_on="id", how="left")  # type: ignore[union-attr]
    return time.process_time() - began


def joins(many: int, count: int, repeats: int) -> Iterator[Figure]:
    """The figures of the join alone."""
    for kind in ("whole numbers", "text", "versions"):
        rows = rows_of_table(many, kind)
        given = list(batches(many, BATCH, count, kind))
        began = time.process_time()
        join = join_with(rows, kind)
        built_s = time.process_time() - began
        runs: dict[str, Callable[[], float]] = {
            "columns": partial(joined_s, join, list(map(Columns, given)))
        }
        if kind == "whole numbers":
            runs["dicts"] = partial(joined_s, join, [to_dicts(Columns(each)) for each in given])
        if kind != "versions":
            runs["Polars"] = partial(polars_s, rows, given[: max(1, count // 10)], False)
            runs["Polars, all at once"] = partial(polars_s, rows, given, True)
        made = dict.fromkeys(runs, BATCH * count)
        made["Polars"] = BATCH * max(1, count // 10)
        rates = alternating(runs, made, repeats)
        note = f"building the table takes {built_s:.2f} s"
        for name in ("Polars", "Polars, all at once"):
            if name in rates:
                note += f"; {name}: {rates[name].typical:,.0f}/s"
        yield rate(f"join by {kind}, columns", rates["columns"], GOAL_COLUMNS, note)
        if "dicts" in rates:
            yield rate(f"join by {kind}, dicts", rates["dicts"], GOAL_DICTS, "")


def alternating(
    runs: Mapping[str, Callable[[], float]], made: Mapping[str, int], repeats: int
) -> dict[str, Repeats]:
    """Rows a second of each, one after the other in each repeat."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats):
        for name, spent_s in runs.items():
            found[name].append(made[name] / spent_s())
        shown = ", ".join(f"{name} {each[-1]:,.0f}/s" for name, each in found.items())
        print(f"{repeat + 1}/{repeats} {shown}", file=sys.stderr, flush=True)
    return {name: Repeats(tuple(each)) for name, each in found.items()}


def rate(name: str, found: Repeats, goal: float, note: str) -> Figure:
    value = None if found.too_noisy else found.typical
    return Figure(name, value, "/s", goal, True, max(found.values), note)


def job_s(seen: Path, users: Path | None) -> float:
    """CPU seconds of the worker in a whole job, with the join or without."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        job = onyx_run.manifest("joins.yaml")
        read, work, _, table = job["spec"]["catalog"]
        read["options"]["path"], table["options"]["path"] = str(seen), str(users)
        job["spec"]["lifecycles"][0]["options"] = {"folder": name}
        modules = ["bench_probe"]
        if users is None:
            del work["join"]
            work["fn"] = "bench_joins:same"
            job["spec"]["catalog"].remove(table)
            modules.append("bench_joins")
        onyx_run.finish(onyx_run.start(onyx_run.command(job, Path(name), modules)), TIMEOUT_S)
        found = [json.loads(each.read_text()) for each in Path(name).glob("span-*.json")]
        return float(sum(each["cpu_s"] for each in found))


def jobs(many: int, rows: int, repeats: int) -> Iterator[Figure]:
    """The figure of a whole job."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        users, seen = Path(name, "users.parquet"), Path(name, "seen.parquet")
        table = rows_of_table(many, "whole numbers")
        pq.write_table(pa.Table.from_batches([table]).drop(["since"]), users)
        given = batches(many, BATCH, rows // BATCH, "whole numbers")
        pq.write_table(pa.Table.from_batches(given), seen, row_group_size=100_000)
        runs = {"with": partial(job_s, seen, users), "without": partial(job_s, seen, None)}
        rates = alternating(runs, dict.fromkeys(runs, rows), repeats)
        note = f"without the join {rates['without'].typical:,.0f}/s"
        yield rate("job with a join by whole numbers, columns", rates["with"], GOAL_COLUMNS, note)


def measure(options: argparse.Namespace) -> Measured:
    os.environ["POLARS_MAX_THREADS"] = "1"
    figures = [*joins(options.rows, options.batches, options.repeats)]
    figures += jobs(options.rows, options.rows_of_a_job, options.repeats)
    return Measured(figures)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--rows", 1_000_000, 200_000, 2_000, "of the table")
    made.sized("--batches", 100, 10, 1, "of 10,000 rows that are joined")
    made.sized("--rows-of-a-job", 6_000_000, 500_000, 10_000)
    made.sized("--repeats", 3, 1, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
