"""Workloads over the record batches of Parquet files with pyarrow, without an engine: the floor of
columns. `python pyarrow_loop.py segments|words|windows FOLDER`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench_columns import count, inc_even
from bench_tasks import Answer

BATCH = 10_000
WINDOW_MS = 60_000


def batches(folder: str) -> Iterator[Any]:
    for path in sorted(Path(folder).glob("part-*")):
        yield from pq.ParquetFile(path).iter_batches(BATCH)


def segments(folder: str) -> tuple[int, int]:
    for batch in batches(folder):
        count(inc_even(batch))
    return Answer.count, Answer.total


def words(folder: str) -> tuple[int, int]:
    found = [
        pc.value_counts(pc.list_flatten(pc.ascii_split_whitespace(batch["line"])))
        for batch in batches(folder)
    ]
    counts = pa.Table.from_struct_array(pa.chunked_array(found)).group_by("values")
    return answer(counts.aggregate([("counts", "sum")])["counts_sum"])


def windows(folder: str) -> tuple[int, int]:
    found = []
    for batch in batches(folder):
        minute = pc.divide(batch["ts"], WINDOW_MS)
        table = pa.table({"key": batch["key"], "minute": minute, "v": batch["v"]})
        found.append(table.group_by(["key", "minute"]).aggregate([("v", "sum")]))
    sums = pa.concat_tables(found).group_by(["key", "minute"]).aggregate([("v_sum", "sum")])
    return answer(sums["v_sum_sum"])


def answer(values: Any) -> tuple[int, int]:
    return len(values), pc.sum(values).as_py()


if __name__ == "__main__":
    workload, folder = sys.argv[1:]
    print("ANSWER", *{"segments": segments, "words": words, "windows": windows}[workload](folder))
