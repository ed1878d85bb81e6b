"""What reading and writing files costs a segment, beside plain Python loops over the same file, and
for Parquet beside pyarrow.

    python -m benchmarks.bench_files [--segments 200000] [--json FILE]

CPU of this process; every row alternates with its peer, and the best of each is taken.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.base.seams import SystemClock
from onyx.ids import GroupId, JobId, PeerId, Slot, TaskName
from onyx.plugins.protocol import START, ColumnsReader, PluginContext
from onyx.plugins.registry import build_input, build_output
from onyx.rights import EVERYTHING

BATCH = 1_000
ROWS = 10_000
"""Of a batch of columns."""


def context(
    options: dict[str, object], batch_format: Literal["dicts", "arrow"] = "dicts"
) -> PluginContext:
    return PluginContext(
        JobId("bench"), "bench", TaskName("task"), PeerId("peer"), Slot(0), GroupId("group"),
        options, BATCH, SystemClock(), lambda name: print, batch_format,
        rights=EVERYTHING,
    )  # fmt: skip


def read_plugin(path: Path) -> int:
    plugin = build_input("files", context({"path": str(path)}))
    reader = plugin.open(str(path), START)
    count = 0
    while not reader.exhausted():
        count += len(reader.read(BATCH))
    reader.close()
    return count


def read_columns(path: Path) -> int:
    reader = build_input("files", context({"path": str(path)}, "arrow")).open(str(path), START)
    assert isinstance(reader, ColumnsReader)
    count = 0
    while not reader.exhausted():
        count += len(reader.read_columns(ROWS))
    reader.close()
    return count


def read_parquet_plain(path: Path) -> int:
    with pq.ParquetFile(path) as file:
        return sum(batch.num_rows for batch in file.iter_batches(ROWS))


def read_jsonl_plain(path: Path) -> int:
    decode = msgspec.json.Decoder(dict).decode
    with open(path, "rb") as file:
        return sum(1 for line in file if decode(line))


def read_csv_plain(path: Path) -> int:
    with open(path, newline="") as file:
        return sum(1 for row in csv.DictReader(file) if row)


def write_plugin(segments: list[dict[str, object]], directory: Path, form: str = "jsonl") -> int:
    options = {"path": str(directory), "format": form, "rollSeconds": 3600}
    output = build_output("files", context(options))
    for start in range(0, len(segments), BATCH):
        output.write(segments[start : start + BATCH])
    output.flush()
    assert output.durable() == len(segments)
    output.close()
    return len(segments)


def write_columns(batches: list[pa.RecordBatch], directory: Path, form: str) -> int:
    options = {"path": str(directory), "format": form, "rollSeconds": 3600}
    output: Any = build_output("files", context(options))
    for each in batches:
        output.write_columns(each)
    output.flush()
    output.close()
    return sum(each.num_rows for each in batches)


def write_arrow_plain(batches: list[pa.RecordBatch], directory: Path) -> int:
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_batches(batches), directory / "plain.parquet")
    return sum(each.num_rows for each in batches)


def write_plain(segments: list[dict[str, object]], directory: Path) -> int:
    encode = msgspec.json.Encoder().encode
    directory.mkdir(exist_ok=True)
    with open(directory / "plain.jsonl", "wb") as file:
        for segment in segments:
            file.write(encode(segment) + b"\n")
    return len(segments)


def compare(
    ours: Callable[[], int], plain: Callable[[], int], segments: int, repeats: int
) -> tuple[float, float]:
    """Best CPU of each, ns a segment."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for side, way in enumerate((ours, plain)):
            started = time.process_time()
            assert way() == segments
            best[side] = min(best[side], (time.process_time() - started) / segments * 1e9)
    return best[0], best[1]


def small(number: int) -> dict[str, object]:
    return {"id": number, "name": f"someone-{number:09d}", "age": number % 90}


def wide(number: int) -> dict[str, object]:
    return {f"column{each}": number * each for each in range(20)}


def write_csv(path: Path, segments: list[dict[str, object]], quoted: bool) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(
            file, segments[0].keys(), quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
        )
        writer.writeheader()
        writer.writerows(segments)


def compared(count: int, folder: Path, repeats: int) -> list[Figure]:
    data = [small(number) for number in range(count)]
    rows = [wide(number) for number in range(count // 4)]
    lines = folder / "small.jsonl"
    lines.write_bytes(msgspec.json.Encoder().encode_lines(data))
    for name, segments, quoted in (
        ("small.csv", data, False), ("wide.csv", rows, False), ("quoted.csv", rows, True),
    ):  # fmt: skip
        write_csv(folder / name, segments, quoted)
    cases: list[tuple[str, Callable[[], int], Callable[[], int], int]] = [
        ("read jsonl, 3 keys", lambda: read_plugin(lines), lambda: read_jsonl_plain(lines), count)
    ]
    for label, name, size in (
        ("read csv, 3 columns", "small.csv", count),
        ("read csv, 20 columns", "wide.csv", count // 4),
        ("read csv, 20 columns, quoted", "quoted.csv", count // 4),
    ):
        path = folder / name
        for kind, read in (("", read_plugin), (" as columns", read_columns)):
            cases.append((label + kind, partial(read, path), partial(read_csv_plain, path), size))
    parquet = folder / "small.parquet"
    pq.write_table(pa.Table.from_pylist(data), parquet)
    cases += [
        ("read jsonl, 3 columns", lambda: read_columns(lines), lambda: read_jsonl_plain(lines),
         count),
        ("read parquet, 3 columns", lambda: read_columns(parquet),
         lambda: read_parquet_plain(parquet), count),
    ]  # fmt: skip
    out = folder / "out"
    cases.append(
        ("write jsonl, 3 keys", lambda: write_plugin(data, out), lambda: write_plain(data, out),
         count)
    )  # fmt: skip
    batches = pa.Table.from_pylist(data).combine_chunks().to_batches(max_chunksize=ROWS)
    cases += [
        ("write jsonl, 3 columns", lambda: write_columns(batches, out, "jsonl"),
         lambda: write_plain(data, out), count),
        ("write parquet, 3 keys", lambda: write_plugin(data, out, "parquet"),
         lambda: write_arrow_plain(batches, out), count),
        ("write parquet, 3 columns", lambda: write_columns(batches, out, "parquet"),
         lambda: write_arrow_plain(batches, out), count),
    ]  # fmt: skip
    figures = []
    for label, ours, plain, size in cases:
        mine, theirs = compare(ours, plain, size, repeats)
        note = f"{mine:,.0f} ns a segment, by hand {theirs:,.0f}"
        figures.append(Figure(f"{label}, CPU to that by hand", mine / theirs, "x", note=note))
    return figures


def measure(options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as folder:
        return Measured(compared(options.segments, Path(folder), options.repeats))


def options() -> Options:
    made = parser(__doc__)
    made.sized("--segments", 200_000, 40_000, 1_000)
    made.sized("--repeats", 3, 3, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
