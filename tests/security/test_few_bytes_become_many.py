"""Messages and files of few bytes that would take gigabytes, and honest ones like them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onyx.codec.streams import EXPANSION_MAX, SMALL_BYTES, read_stream
from onyx.errors import OnyxError, SegmentError, UserError
from onyx.flow.columns.record_batch import to_dicts
from onyx.plugins.files.parquet_reader import EXPANDED_BYTES_MAX, ParquetRows
from onyx.storage.files import LocalFiles

ROWS = 200_000


def stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def batch(column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([column], ["v"])


def dictionary(value: object, rows: int) -> pa.Array:
    indices = pa.array(np.zeros(rows, np.int8))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


def list_views(rows: int) -> pa.Array:
    offsets, sizes = np.zeros(rows, np.int32), np.full(rows, 1_000, np.int32)
    return pa.ListViewArray.from_arrays(
        pa.array(offsets), pa.array(sizes), pa.array(range(1_000), pa.int64())
    )


BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros that are compressed": lambda: stream(
        batch(pa.array(np.zeros(ROWS * 50, np.int64))), compression="zstd"
    ),
    "the same in many batches": lambda: stream(
        *[batch(pa.array(np.zeros(ROWS, np.int64)))] * 5, compression="lz4"
    ),
    "a long text in a dictionary": lambda: stream(batch(dictionary("x" * 10_000, ROWS))),
    "a dictionary in a list": lambda: stream(
        batch(pa.ListArray.from_arrays([0, ROWS], dictionary("x" * 10_000, ROWS)))
    ),
    "a dictionary in a struct": lambda: stream(
        batch(pa.StructArray.from_arrays([dictionary("x" * 10_000, ROWS)], ["s"]))
    ),
    "lists in a dictionary": lambda: stream(batch(dictionary([1] * 10_000, ROWS))),
    "a dictionary that is compressed": lambda: stream(
        batch(dictionary("x" * 1_000_000, 1_000)), compression="zstd"
    ),
    "one run": lambda: stream(
        batch(pa.RunEndEncodedArray.from_arrays(pa.array([ROWS]), pa.array(["x" * 1_000])))
    ),
    "list views of one list": lambda: stream(batch(list_views(ROWS // 10))),
    "more rows than one may have": lambda: stream(*[batch(pa.nulls(ROWS))] * 10),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_stream_that_would_become_much_is_refused_before_it_does(bomb: str) -> None:
    data = BOMBS[bomb]()
    before = pa.total_allocated_bytes()

    with pytest.raises(SegmentError, match=r"allowed|at most|claims"):
        read_stream(data)

    assert pa.total_allocated_bytes() - before <= max(SMALL_BYTES, EXPANSION_MAX * len(data))


HONEST: dict[str, Callable[[], list[pa.Array]]] = {
    "numbers": lambda: [pa.array([1, 2, None])],
    "categories": lambda: [pa.array(["red", "blue", None, "red"]).dictionary_encode()] * 2,
    "runs": lambda: [pa.RunEndEncodedArray.from_arrays(pa.array([2, 5]), pa.array(["a", None]))],
    "list views": lambda: [
        pa.array([[1, 2], None, [], [3]], pa.list_view(pa.int64())),
    ],
    "text views": lambda: [pa.array(["a" * 20, None, "b"], pa.string_view())],
    "maps of categories": lambda: [
        pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    ],
    "a dictionary of nothing": lambda: [pa.array([None, None], pa.string()).dictionary_encode()],
    "nothing": lambda: [pa.array([], pa.string())],
}


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("kind", HONEST)
def test_an_honest_stream_is_read_as_it_was_written(kind: str, compression: str | None) -> None:
    columns = HONEST[kind]()

    found = read_stream(stream(*map(batch, columns), compression=compression))

    said = [row["v"] for row in to_dicts(found)]
    values = [value for column in columns for value in column.to_pylist()]
    if kind.startswith("maps"):
        values = [v if v is None else [{"key": k, "value": x} for k, x in v] for v in values]
    assert said == values


def test_a_dictionary_that_grows_with_each_batch_is_not_kept_as_often() -> None:
    words = [f"{index:0100d}" for index in range(300)]
    grown = [
        batch(pa.DictionaryArray.from_arrays(pa.array([index]), pa.array(words[: index + 1])))
        for index in range(300)
    ]

    found = read_stream(stream(*grown))

    assert [row["v"] for row in to_dicts(found)] == words


def test_a_stream_cut_or_changed_anywhere_is_refused_or_read_and_nothing_else() -> None:
    data = stream(batch(pa.array(["red", "blue"] * 5).dictionary_encode()), compression="lz4")
    for at in range(0, len(data), 3):
        for changed in (data[:at], data[:at] + b"\xff" + data[at + 1 :]):
            try:
                read_stream(changed)
            except SegmentError:
                continue


def of_dictionary(value: str) -> pa.Array:
    indices = pa.array(np.arange(ROWS) % 2, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(["short", value]))


def all_in_one_row(value: str) -> pa.Array:
    return pa.ListArray.from_arrays([0, ROWS], of_dictionary(value))


def a_list_a_row(value: str) -> pa.Array:
    return pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), of_dictionary(value))


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
@pytest.mark.parametrize(
    "column",
    [of_dictionary, lambda value: pa.StructArray.from_arrays([of_dictionary(value)], ["s"])],
    ids=["of texts", "of structs"],
)
def test_a_file_whose_dictionary_is_named_by_many_rows_is_read_in_small_parts(
    tmp_path: Path, column: Callable[[str], pa.Array], compression: str
) -> None:
    path = tmp_path / "small.parquet"
    pq.write_table(pa.table({"v": column("x" * 100_000)}), path, compression=compression)
    rows = ParquetRows(str(path), 0, LocalFiles())

    first = rows.next(65_536)

    assert os.path.getsize(path) < 200_000
    assert first is not None
    assert len(first) > 1_000
    assert first.size_bytes <= EXPANDED_BYTES_MAX
    rows.close()


@pytest.mark.parametrize("column", [all_in_one_row, a_list_a_row])
def test_a_file_whose_lists_would_become_much_is_refused(
    tmp_path: Path, column: Callable[[str], pa.Array]
) -> None:
    path = tmp_path / "small.parquet"
    pq.write_table(pa.table({"v": column("x" * 100_000)}), path, compression="zstd")
    rows = ParquetRows(str(path), 0, LocalFiles())

    with pytest.raises(UserError, match=r"small.parquet: column v.list.element has lists"):
        rows.next(65_536)
    rows.close()


def test_a_file_of_short_values_is_read_in_batches_of_the_size_asked(tmp_path: Path) -> None:
    path = tmp_path / "usual.parquet"
    pq.write_table(pa.table({"v": of_dictionary("long"), "n": pa.array(range(ROWS))}), path)
    rows = ParquetRows(str(path), 0, LocalFiles())

    first = rows.next(65_536)

    assert first is not None
    assert len(first) == 65_536
    rows.close()


def test_a_file_changed_anywhere_is_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "changed.parquet"
    colours = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2] * 9, pa.int32()), ["red", "blü", "green"]
    )
    pq.write_table(pa.table({"colöurs": colours}), path, compression="none", store_schema=False)
    data = path.read_bytes()
    for at in range(len(data)):
        for change in (0x01, 0x55, 0xFF):
            path.write_bytes(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])
            with suppress(OnyxError), closing(ParquetRows(str(path), 0, LocalFiles())) as rows:
                while rows.next(100) is not None:
                    pass
