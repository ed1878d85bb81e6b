"""Reading files: any contents, any blocks, any place to start again give the same segments."""

import contextlib
import csv
import io
import json
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.plugin_context import plugin_context

from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.plugins.files import text_reader as file_reader
from onyx.plugins.files.csv_format import CsvRecords
from onyx.plugins.files.lines import JsonLineRecords, TextRecords
from onyx.plugins.protocol import START
from onyx.plugins.records import BadRecords
from onyx.plugins.registry import build_input
from onyx.testing.columns_kit import without_nulls

FIELD = st.text(st.sampled_from('ab,"\n\r; ü\u2028\x0b'), max_size=6)
RECORD_BYTES_MAX = 64


def _csv(rows):
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue().encode()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("files") / "data"


def _read_with_restarts(path, block_bytes, sizes, batch_format="dicts", **options):
    """Read in steps of `sizes`, each by a new reader at the cursor of the last one."""
    before = file_reader.BLOCK_BYTES, file_reader.COLUMNS_BLOCK_BYTES
    file_reader.BLOCK_BYTES = file_reader.COLUMNS_BLOCK_BYTES = block_bytes
    try:
        context = plugin_context({"path": str(path), **options}, batch_format=batch_format)
        plugin = build_input("files", context)
        segments, cursor = [], START
        for size in [*sizes, 10**9]:
            reader = plugin.open(str(path), cursor)
            read = reader.read if batch_format == "dicts" else partial(_rows, reader)
            del segments[cursor.position :]
            with contextlib.closing(reader):
                while len(segments) < size and not reader.exhausted():
                    segments += read(size - len(segments))
                cursor = reader.cursor(len(segments))
        return segments
    finally:
        file_reader.BLOCK_BYTES, file_reader.COLUMNS_BLOCK_BYTES = before


def _rows(reader, segments_max):
    found = reader.read_columns(segments_max)
    return found if isinstance(found, list) else to_dicts(Columns(found))


GARBAGE = st.lists(
    st.sampled_from([b"a", b",", b'"', b"\n", b"\r\n", b"\xff", b'{"a":1}', b"x" * 70]),
    max_size=30,
).map(b"".join)
READING = {"block_bytes": st.integers(16, 80), "sizes": st.lists(st.integers(0, 12), max_size=3)}


@settings(max_examples=examples(150), deadline=None)
@given(rows=st.lists(st.lists(FIELD, min_size=2, max_size=2), max_size=8), **READING)
def test_csv_that_was_written_is_read(path, rows, block_bytes, sizes):
    path.write_bytes(_csv([["x", "y"], *rows]))
    sizes = sorted(sizes)
    segments = _read_with_restarts(path, block_bytes, sizes, format="csv", recordBytesMax=4096)
    assert segments == [{"x": x, "y": y} for x, y in rows]


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.text(max_size=3), st.text(max_size=9), max_size=2), max_size=9
    ),
    newline=st.sampled_from(["\n", "\r\n", "\n\n"]),
    **READING,
)
def test_json_lines_that_were_written_are_read(path, rows, newline, block_bytes, sizes):
    path.write_text("".join(json.dumps(row) + newline for row in rows), newline="")
    sizes = sorted(sizes)
    options = {"format": "jsonl", "recordBytesMax": 4096}
    assert _read_with_restarts(path, block_bytes, sizes, **options) == rows


@settings(max_examples=examples(300), deadline=None)
@given(
    data=GARBAGE,
    kind=st.sampled_from(["csv", "jsonl", "text"]),
    **READING,
)
def test_garbage_gives_the_same_records_wherever_blocks_and_readers_begin(
    path, data, kind, block_bytes, sizes
):
    path.write_bytes(data)
    options = {"format": kind, "onBadRecord": "segment", "recordBytesMax": RECORD_BYTES_MAX}
    if kind == "csv":
        options |= {"header": False, "columns": ["x", "y"]}
    whole = _read_with_restarts(path, 64, [], **options)
    assert _read_with_restarts(path, block_bytes, sorted(sizes), **options) == whole


@settings(max_examples=examples(300), deadline=None)
@given(
    rows=st.lists(st.tuples(FIELD, st.text("01.+-e xX_na(", max_size=4)), max_size=8),
    kind=st.sampled_from(["int", "float", "bool", "str"]),
    **READING,
)
def test_csv_is_the_same_in_columns(path, rows, kind, block_bytes, sizes):
    path.write_bytes(_csv([["x", "y"], *rows]))
    options = {"format": "csv", "types": {"y": kind}, "onBadRecord": "segment"}
    options["recordBytesMax"] = 4096
    dicts = _read_with_restarts(path, 64, [], **options)
    columns = _read_with_restarts(path, block_bytes, sorted(sizes), "arrow", **options)
    assert repr(without_nulls(columns)) == repr(without_nulls(dicts))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3)
    | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from("abc"), each),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), max_size=9),
    newline=st.sampled_from(["\n", "\r\n", "\n\n"]),
    **READING,
)
@example(rows=[{}] * 3 + [{"a": None}] * 2 + [{"b": {}}], newline="\n", block_bytes=16, sizes=[])
def test_json_lines_are_the_same_in_columns(path, rows, newline, block_bytes, sizes):
    path.write_text("".join(json.dumps(row) + newline for row in rows), newline="")
    options = {"format": "jsonl", "recordBytesMax": 4096}
    found = _read_with_restarts(path, block_bytes, sorted(sizes), "arrow", **options)
    assert without_nulls(found) == without_nulls(rows)


@settings(max_examples=examples(300), deadline=None)
@given(data=GARBAGE, kind=st.sampled_from(["csv", "jsonl", "text"]), **READING)
def test_garbage_is_the_same_in_columns(path, data, kind, block_bytes, sizes):
    path.write_bytes(data)
    options = {"format": kind, "onBadRecord": "segment", "recordBytesMax": RECORD_BYTES_MAX}
    if kind == "csv":
        options |= {"header": False, "columns": ["x", "y"], "types": {"y": "int"}}
    dicts = _read_with_restarts(path, 64, [], **options)
    columns = _read_with_restarts(path, block_bytes, sorted(sizes), "arrow", **options)
    assert without_nulls(columns) == without_nulls(dicts)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.binary(max_size=60), cut=st.integers(0, 60))
def test_a_format_uses_whole_records_only_and_everything_at_the_end(data, cut):
    bad = BadRecords("test", keep=True)
    for records in (JsonLineRecords(bad), TextRecords(bad), CsvRecords(["a"], {}, ",", bad)):
        whole, used = records.decode(data, 0, True)
        assert used == len(data)
        head, used = records.decode(data[:cut], 0, False)
        rest, rest_used = records.decode(data[used:], len(head), True)
        assert head + rest == whole
        assert used + rest_used == len(data)
