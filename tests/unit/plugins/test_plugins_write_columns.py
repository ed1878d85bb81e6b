"""Outputs that take columns write what they write for the same segments in dicts."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.plugin_context import plugin_context
from tests.support.windows.column_strategies import columns

from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns, from_dicts, of_table, to_dicts
from onyx.plugins import channel, function, jsonl
from onyx.plugins.channel import open_channel
from onyx.plugins.parts import formats
from onyx.plugins.registry import build_output

Segments = list[dict[str, Any]]
PLAIN_KEYS = st.text(min_size=1, max_size=3)


def batch(*numbers: int) -> pa.RecordBatch:
    return from_dicts([{"n": n} for n in numbers])[0].record_batch


def numbers(*values: int) -> Segments:
    return [{"n": n} for n in values]


def files_output(path: Path, **options: Any) -> Any:
    return build_output("files", plugin_context({"path": str(path), **options}))


def written(path: Path, segments: Sequence[Segments | pa.RecordBatch], **options: Any) -> list[Any]:
    """The parts, in order: JSON lines as bytes, Parquet as tables."""
    output = files_output(path, **options)
    for each in segments:
        output.write(each) if isinstance(each, list) else output.write_columns(each)
    output.flush()
    assert output.durable() == sum(map(len, segments))
    output.close()
    parts = sorted(path.glob("part-*"))
    found: list[Any] = []
    for part in parts:
        if part.suffix == ".parquet":
            found.append(pq.read_table(part))
        else:
            found.append(
                gzip.decompress(part.read_bytes()) if part.suffix == ".gz" else part.read_bytes()
            )
        part.unlink()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts")


SLOW = [HealthCheck.too_slow]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=SLOW)
@given(rows=columns(), compression=st.sampled_from(["none", "gzip"]))
def test_jsonl_has_the_same_bytes(folder: Path, rows: Columns, compression: str) -> None:
    options = {"compression": compression}
    mine = written(folder, [rows.record_batch], **options)
    assert mine == written(folder, [to_dicts(rows)], **options)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=SLOW)
@given(rows=columns(PLAIN_KEYS, 1), compression=st.sampled_from(["none", "snappy", "zstd"]))
def test_parquet_has_the_rows_and_types(folder: Path, rows: Columns, compression: str) -> None:
    mine = written(folder, [rows.record_batch], format="parquet", compression=compression)
    if len(rows):
        assert mine[0].schema.equals(rows.record_batch.schema)
        assert to_dicts(of_table(mine[0])) == to_dicts(rows)


def test_dicts_and_columns_of_one_part_keep_their_order(tmp_path: Path) -> None:
    mixed = [numbers(1), batch(2, 3), numbers(4), batch(5)]
    assert written(tmp_path, mixed) == [b"".join(b'{"n":%d}\n' % n for n in range(1, 6))]
    (table,) = written(tmp_path, mixed, format="parquet")
    assert table.to_pylist() == numbers(1, 2, 3, 4, 5)


def test_a_part_has_one_schema_which_holds_all_that_was_written(tmp_path: Path) -> None:
    wide = pa.RecordBatch.from_pydict({"n": [2.5], "name": ["x"]})
    narrow = pa.RecordBatch.from_arrays([pa.array([7], pa.int8())], names=["n"])
    (table,) = written(tmp_path, [batch(1), wide, narrow, [{"extra": True}]], format="parquet")
    assert table.schema.field("n").type == pa.float64()
    assert table.to_pylist() == [
        {"n": 1.0, "name": None, "extra": None},
        {"n": 2.5, "name": "x", "extra": None},
        {"n": 7.0, "name": None, "extra": None},
        {"n": None, "name": None, "extra": True},
    ]


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ZONES = ["UTC", "+00:00", "Etc/UTC", "Europe/Berlin", "+02:00", "GMT"]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("zones", [ZONES[:3], ZONES[::-1], ["UTC", "GMT"], ["GMT", "GMT"]], ids=str)
def test_instants_of_several_time_zones_are_one_column(
    tmp_path: Path, zones: list[str], nested: bool
) -> None:
    def given(zone: str) -> pa.RecordBatch:
        kind = pa.timestamp("us", zone)
        value: Any = [{"t": NOON}] if nested else NOON
        array = pa.array([value, None], pa.list_(pa.struct([("t", kind)])) if nested else kind)
        return Columns.of(pa.record_batch([array], names=["at"])).record_batch

    dicts = [{"at": [{"t": NOON}] if nested else NOON}]
    (table,) = written(tmp_path, [*map(given, zones), dicts], format="parquet")
    found = [each["at"] for each in table.to_pylist()]
    assert found == [*[dicts[0]["at"], None] * len(zones), dicts[0]["at"]]


def test_columns_of_types_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    output = files_output(tmp_path, format="parquet")
    output.write_columns(batch(1))
    with pytest.raises(UserError, match=r"cannot be written as Parquet.* values of one type"):
        output.write_columns(pa.RecordBatch.from_pydict({"n": ["one"]}))


def test_rows_without_columns_are_refused_by_parquet(tmp_path: Path) -> None:
    empty = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
    with pytest.raises(UserError, match="no keys, so there are no columns"):
        files_output(tmp_path, format="parquet").write_columns(empty)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("options", [{"rollSegments": 3}, {"rollBytes": 16}], ids=str)
def test_parts_end_as_they_do_with_dicts(
    tmp_path: Path, form: str, options: dict[str, Any]
) -> None:
    output = files_output(tmp_path, format=form, **options)
    for each in ([1, 2], [3], [4, 5, 6, 7], [8]):
        output.write_columns(batch(*each))
    assert output.durable() == 7
    assert len(list(tmp_path.glob("part-*"))) == 2
    output.close()


def test_a_commit_counts_rows(tmp_path: Path) -> None:
    commits: list[int] = []
    output = files_output(tmp_path, rollSegments=4)
    output.begin(lambda token, segments: commits.append(segments))
    for each in (batch(1, 2, 3), numbers(4), batch(5)):
        output.write(each) if isinstance(each, list) else output.write_columns(each)
    output.flush()
    assert commits == [4, 1]
    output.begin(lambda token, segments: commits.append(segments))
    assert output.durable() == 5
    output.close()


def test_a_batch_without_rows_is_no_part(tmp_path: Path) -> None:
    assert written(tmp_path, [batch()]) == []


def test_stdout_writes_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    output: Any = build_output("stdout", plugin_context({}))
    output.write_columns(batch(1, 2))
    output.write(numbers(3))
    lines = capsys.readouterr().out.splitlines()
    assert [msgspec.json.decode(line) for line in lines] == numbers(1, 2, 3)
    assert output.durable() == 3


def test_the_blackhole_counts_rows() -> None:
    output: Any = build_output("blackhole", plugin_context({}))
    output.write_columns(batch(1, 2))
    output.write(numbers(3))
    assert output.durable() == 3


def test_a_channel_takes_both_and_gives_either() -> None:
    queue = open_channel("out", segments_max=4)
    output: Any = build_output("channel", plugin_context({"channel": "out"}))
    output.write(numbers(1))
    output.write_columns(batch(2, 3, 4, 5, 6))
    assert output.durable() == 4
    assert queue.take(2) == numbers(1, 2)
    output.tick()
    assert output.durable() == 6
    taken = queue.take_columns()
    assert taken.to_pylist() == numbers(3, 4, 5, 6)
    assert taken.schema == pa.schema([("n", pa.int64())])
    output.seal()
    assert queue.take_columns().num_rows == 0


def test_rows_put_into_a_channel_are_read_as_segments() -> None:
    queue = open_channel("in", segments_max=4)
    queue.put_columns(pa.RecordBatch.from_pydict({"n": pa.array([1, 2], pa.int32())}))
    queue.put({"n": 3})
    assert queue.fetch(1, 5) == numbers(2, 3)
    with pytest.raises(UserError, match="no room"):
        queue.put_columns(batch(4, 5), timeout_s=0)
    assert queue.fetch(0, 5) == numbers(1, 2, 3, 4)


def test_dicts_that_are_no_columns_are_reported_by_a_channel() -> None:
    queue = open_channel("odd")
    queue.put({"n": 1}, {"n": "one"})
    with pytest.raises(UserError, match="segment 1 of the channel: key 'n' holds a str"):
        queue.take_columns()


@pytest.mark.parametrize(
    ("options", "batch_format", "calls"),
    [
        ({"batch": True}, "arrow", [batch(1, 2)]),
        ({"batch": True}, "dicts", [numbers(1, 2)]),
        ({}, "arrow", numbers(1, 2)),
        ({}, "dicts", numbers(1, 2)),
    ],
    ids=str,
)
def test_a_function_gets_what_the_batch_format_says(
    options: dict[str, Any], batch_format: Any, calls: list[Any]
) -> None:
    found: list[Any] = []
    context = plugin_context(
        {"fn": "m:f", **options}, functions={"m:f": found.append}, batch_format=batch_format
    )
    output: Any = build_output("function", context)
    output.write_columns(batch(1, 2))
    assert found == calls
    assert output.durable() == 2


USUAL = Columns.of(
    pa.RecordBatch.from_pydict({
        "n": [1, None], "x": [0.5, None], "s": ['"', None], "b": [True, None],
        "at": [datetime(2026, 3, 1, tzinfo=UTC), None], "day": [date(2026, 3, 1), None],
        "price": [Decimal("1.50"), None], "many": [[1, 2], None],
    })
).record_batch  # fmt: skip


@pytest.mark.parametrize(
    ("plugin", "options"),
    [
        ("files", {"format": "jsonl"}),
        ("files", {"format": "jsonl", "nan": "text", "compression": "gzip"}),
        ("files", {"format": "parquet"}),
        ("stdout", {}),
        ("blackhole", {}),
        ("channel", {"channel": "seen"}),
        ("function", {"fn": "m:f", "batch": True}),
    ],
    ids=str,
)
def test_no_dicts_are_made_of_columns(
    plugin: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(columns: Columns) -> None:
        raise AssertionError("made dicts of columns")

    for module in (jsonl, channel, function, formats):
        monkeypatch.setattr(module, "to_dicts", refuse, raising=False)
    seen = open_channel("seen")
    given = {**options, "path": str(tmp_path)} if plugin == "files" else options
    context = plugin_context(given, functions={"m:f": lambda rows: None}, batch_format="arrow")
    output: Any = build_output(plugin, context)
    output.write_columns(USUAL)
    output.flush()
    assert output.durable() == 2
    output.close()
    assert seen.take_columns().num_rows == (2 if plugin == "channel" else 0)
