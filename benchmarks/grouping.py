"""Sums by key over many groups: `python -m benchmarks.grouping [--records 20000000]`

A group for every twenty rows. The job reads Parquet in columns, adds up a global window by key,
exactly once with its state log on disk, and writes the sums as Parquet. DuckDB and Spark do the
same with `GROUP BY`, over whole tables and with nothing kept. CPU is of whole process trees without
their start; that of Spark is of a second run in one session.
"""

from __future__ import annotations

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
from benchmarks import data
from benchmarks.data import Answer, Data
from benchmarks.harness import Absent, Contender
from benchmarks.onyx_ways import OUT, Way, contenders
from benchmarks.peers import CODE, CONTENDERS, absent, by_name, spark_environment
from benchmarks.workload import Goal, Workload, compared

RECORDS = 20_000_000
ROWS_A_GROUP = 20
VALUES = 97
WAYS = {
    "onyx-1": Way("grouping.yaml", "1 process, exactly-once", 1, "exactly-once"),
    "onyx-3": Way("grouping.yaml", "3 processes, shuffle, exactly-once", 3, "exactly-once"),
}
GOALS = (
    Goal("onyx-1", "duckdb", 4.0, "one process"),
    Goal("onyx-1", "spark", 0.35, "one process"),
)


def rows(count: int) -> Data:
    """Files of so many rows with random keys, made at the first use."""
    folder = data.ROOT / f"grouping-{count}"
    path = folder / "answer.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(data.SEED)
        key = random.integers(0, -(-count // ROWS_A_GROUP), count)
        value = np.arange(count) % VALUES
        half = -(-count // data.FILES)
        for file in range(data.FILES):
            part = slice(file * half, (file + 1) * half)
            table = pa.table({"k": key[part], "v": value[part]})
            pq.write_table(table, folder / f"part-{file}.parquet", row_group_size=data.ROW_GROUP)
        path.write_text(json.dumps([len(np.unique(key)), int(value.sum())]))
    groups, total = json.loads(path.read_text())
    return Data(folder, count, (groups, total))


def written(output: str, folder: Path) -> Answer:
    """How many sums there are, and their sum."""
    sums = ds.dataset(folder / OUT, format="parquet").to_table(columns=["state"])["state"]
    return len(sums), int(np.sum(sums.to_numpy()))


def workload() -> Workload:
    return Workload(
        "Sums by key",
        rows,
        by_name(_duckdb(), _spark()),
        contenders(WAYS, [], written),
        GOALS,
        quick=["duckdb", *WAYS],
        unit="duckdb",
        records=RECORDS,
    )


def _duckdb() -> Contender | Absent:
    if not importlib.util.find_spec("duckdb"):
        return absent("duckdb", "pip install duckdb")
    return Contender("duckdb", partial(_program, "duckdb"), written, CODE, "whole tables")


def _spark() -> Contender | Absent:
    if not importlib.util.find_spec("pyspark"):
        return absent("spark", "pip install 'onyx-on-kubernetes[spark]'")
    command, note = partial(_program, "spark"), "whole tables, local[1], warm"
    return Contender("spark", command, written, spark_environment(), note, tells_cpu=True)


def _program(engine: str, data: Data, folder: Path) -> Sequence[str]:
    program = str(CONTENDERS / "grouping.py")
    return [sys.executable, program, engine, str(data.folder), str(folder / OUT)]


def main(arguments: Sequence[str] | None = None) -> None:
    compared(workload(), arguments)


if __name__ == "__main__":
    main()
