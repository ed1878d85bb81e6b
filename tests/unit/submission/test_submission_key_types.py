"""Keys that never equal each other because of their types are said before a run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.yaml_jobs import manifest

from onyx.errors import Problem
from onyx.model.parsing.job import parse_mapping
from onyx.settings import Settings
from onyx.submission.key_types import unlike_keys

CSV = "plugin: files, options: {path: in.csv}"
TYPED = "plugin: files, options: {path: in.csv, types: {id: int}}"
JSON = "plugin: files, options: {path: in.jsonl}"
PARQUET = "plugin: files, options: {path: in.parquet}"
SCHEMA = "plugin: generator, schema: {id: string}"
UNKNOWN = "plugin: generator, options: {segments: 1}"
ROWS = "plugin: sequence, options: {segments: [{id: a}, {id: null}, {}]}"
MIXED = "plugin: sequence, options: {segments: [{id: a}, {id: 1}]}"
JOINED = """
    workflow: [[left, join], [right, join], [join, write]]
    catalog:
      - {{name: left, type: input, {left}}}
      - {{name: right, type: input, {right}}}
      - name: join
        type: join
        left: {{task: left, key: id, at: t}}
        right: {{task: right, key: id, at: t}}
        range: [1, hour]
        deduplicate: false
      - {{name: write, type: output, plugin: stdout}}
"""
LOOKED_UP = """
    workflow: [[read, same], [same, look], [look, write]]
    catalog:
      - {{name: read, type: input, {left}}}
      - {{name: names, type: table, key: id, {right}}}
      - {{name: same, type: function, join: {{table: names, key: id, as: same}}}}
      - {{name: look, type: function, join: {{table: names, key: id}}}}
      - {{name: write, type: output, plugin: stdout}}
"""
GROUPED = """
    workflow: [[left, group], [right, group], [group, write]]
    catalog:
      - {{name: left, type: input, {left}}}
      - {{name: right, type: input, {right}}}
      - {{name: group, type: function, fn: "f:inc", groupByKey: id, fluxPolicy: continue}}
      - {{name: write, type: output, plugin: stdout}}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "in.csv").write_text("id,t\n1,0\n")
    (tmp_path / "other.csv").write_text("name,t\na,0\n")
    for odd in ("odd.csv", "odd.jsonl"):
        (tmp_path / odd).write_bytes(b'\xff\0"id\n')
    (tmp_path / "in.jsonl").write_text('{"id": 1, "t": 0}\n\n{"id": 2.5}\n')
    pq.write_table(pa.table({"id": pa.array(["a"]).dictionary_encode()}), tmp_path / "in.parquet")
    return Settings(data_dir=str(tmp_path))


def found(text: str, left: str, right: str, settings: Settings) -> list[Problem]:
    return unlike_keys(parse_mapping(manifest(text.format(left=left, right=right))), settings)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (JOINED, "spec.catalog[2].right.key"),
        (LOOKED_UP, "spec.catalog[2].join.key"),
        (GROUPED, "spec.catalog[2].groupByKey"),
    ],
)
def test_text_of_csv_never_equals_numbers_of_json(text: str, path: str, settings: Settings) -> None:
    problem = found(text, CSV, JSON, settings)[0]
    assert problem.path == path
    assert problem.message.startswith("is text in segments of ")
    assert "add types: {id: int} to the options of " in problem.hint
    assert found(text, JSON, CSV, settings)[0].path == path


@pytest.mark.parametrize(
    ("one", "other", "hint"),
    [
        (PARQUET, JSON, "convert id in a function before"),
        (ROWS, JSON, "convert id in a function before"),
        (PARQUET, TYPED, "take id out of types of right"),
        (SCHEMA, TYPED, "take id out of types of right"),
    ],
)
def test_what_each_source_says_of_its_types_counts(
    one: str, other: str, hint: str, settings: Settings
) -> None:
    (problem,) = found(JOINED, one, other, settings)
    assert problem.hint == hint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (CSV, PARQUET), (TYPED, JSON), (CSV, UNKNOWN), (JSON, UNKNOWN), (MIXED, JSON), (MIXED, CSV),
        (JSON, "plugin: files, options: {path: none.jsonl}"),
        (JSON, "plugin: files, options: {path: other.csv}"),
        (JSON, "plugin: files, options: {path: in.csv, delimiter: ;}"),
        (JSON, "plugin: files, options: {path: odd.csv}"),
        (CSV, "plugin: files, options: {path: odd.jsonl}"),
        (CSV, "plugin: files, options: {path: in.jsonl.gz}"),
        (CSV, "plugin: files, options: {path: in.csv, format: jsonl}"),
    ],
)  # fmt: skip
def test_keys_of_one_type_and_of_none_that_is_known_have_no_problem(
    one: str, other: str, settings: Settings
) -> None:
    assert found(JOINED, one, other, settings) == []


def test_nothing_is_known_behind_a_function(settings: Settings) -> None:
    lookups = found(LOOKED_UP, CSV, JSON, settings)
    assert [each.path for each in lookups] == [
        "spec.catalog[2].join.key",
        "spec.catalog[3].join.key",
    ]
    text = LOOKED_UP.replace("{{name: same,", '{{name: same, fn: "f:inc",')
    lookups = found(text, CSV, JSON, settings)
    assert [each.path for each in lookups] == ["spec.catalog[2].join.key"]
