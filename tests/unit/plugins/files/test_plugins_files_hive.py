"""Folders `key=value` in the path of a file are keys of its segments, in all formats, in dicts and
columns alike, in a folder as in a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.plugins.files.extras import partition_values
from onyx.plugins.protocol import START, Input
from onyx.plugins.registry import build_input

ROWS = [{"n": 1}, {"n": 2}]
FORMATS = ("jsonl", "csv", "parquet", "txt")


def write(folder: Path, kind: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
        return file
    lines = [json.dumps(row) if kind == "jsonl" else str(row["n"]) for row in rows]
    head = ["n"] if kind == "csv" else []
    file.write_text("".join(f"{line}\n" for line in [*head, *lines]))
    return file


def made(path: Path | str, form: str, schema: pa.Schema | None = None, **options: Any) -> Input:
    options["path"] = str(path)
    context = plugin_context(options, batch_format=form, schema=schema)
    return build_input("files", context)


def read(
    path: Path | str, form: str, schema: pa.Schema | None = None, **options: Any
) -> list[dict[str, Any]]:
    return rows_of(made(path, form, schema, **options), form)


def rows_of(plugin: Input, form: str = "dicts") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition in plugin.partitions():
        with closing(plugin.open(partition, START)) as reader:
            if form == "dicts":
                found += reader.read(100)
                continue
            for part in columns_of(reader):
                found += part if isinstance(part, list) else to_dicts(Columns(part))
    return found


def columns_of(reader: Any) -> Iterator[Any]:
    while not reader.exhausted():
        yield reader.read_columns(100)


@pytest.mark.parametrize("form", ["dicts", "arrow"])
@pytest.mark.parametrize("kind", FORMATS)
def test_folders_are_keys_of_segments_in_each_format(tmp_path: Path, kind: str, form: str) -> None:
    write(tmp_path / "year=2024" / "city=S%C3%A3o%20Paulo", kind)
    write(tmp_path / "year=2025" / "city=__HIVE_DEFAULT_PARTITION__", kind)
    found = read(tmp_path / f"**/*.{kind}", form)
    assert [(each["year"], each["city"]) for each in found] == [
        ("2024", "São Paulo"), ("2024", "São Paulo"), ("2025", None), ("2025", None),
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["dicts", "arrow"])
@pytest.mark.parametrize("kind", FORMATS)
def test_types_says_what_their_values_are(tmp_path: Path, kind: str, form: str) -> None:
    file = write(tmp_path / "year=2024" / "share=0.5" / "cold=true" / "x=", kind)
    types = {"year": "int", "share": "float", "cold": "bool", "x": "int"}
    first = read(file, form, types=types)[0]
    values = [first[key] for key in types]
    assert values == [2024, 0.5, True, None]
    assert list(map(type, values)) == [int, float, bool, type(None)]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_schema_says_what_their_values_are_and_which_there_are(tmp_path: Path, kind: str) -> None:
    file = write(tmp_path / "day=2024-02-29" / "hour=07" / "other=1", kind)
    schema = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("hour", pa.int64())])
    found = read(file, "arrow", schema)
    assert found == [{"n": n, "day": date(2024, 2, 29), "hour": 7} for n in (1, 2)]


@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_the_folder_stands_in_the_place_of_the_key_of_the_file(tmp_path: Path, form: str) -> None:
    file = write(tmp_path / "n=7", "parquet")
    assert read(file, form, types={"n": "int"}) == [{"n": 7}, {"n": 7}]


@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_they_can_be_left_alone(tmp_path: Path, form: str) -> None:
    file = write(tmp_path / "year=2024", "jsonl")
    assert read(file, form, hivePartitioning=False) == ROWS


@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_a_value_that_has_another_type_is_refused_with_its_folder(
    tmp_path: Path, form: str
) -> None:
    file = write(tmp_path / "year=old", "jsonl")
    with pytest.raises(UserError, match=r"the folder year=old of .* holds no int64"):
        read(file, form, types={"year": "int"})


def test_the_folder_of_the_data_of_a_worker_is_nobodys_key(tmp_path: Path) -> None:
    write(tmp_path / "env=prod" / "year=2024", "jsonl")
    context = plugin_context({"path": "year=*/*.jsonl"}, data_dir=str(tmp_path / "env=prod"))
    plugin = build_input("files", context)
    assert rows_of(plugin)[0] == {"n": 1, "year": "2024"}


def test_objects_have_the_keys_of_their_paths() -> None:
    path = "s3://bucket/year=2024/at=10%3A30/not/=x/a=b=c.parquet"
    assert partition_values(path) == {"year": "2024", "at": "10:30"}
