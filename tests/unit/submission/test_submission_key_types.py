"""Keys that segments lack, or that never equal each other because of their types, are said before a
run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.yaml_jobs import manifest

from onyx.errors import Problem
from onyx.model.parsing.job import parse_mapping
from onyx.settings import Settings
from onyx.submission.key_types import keys_in_vain

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
    return keys_in_vain(parse_mapping(manifest(text.format(left=left, right=right))), settings)


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


ONE_INPUT = """
    workflow: [[read, f], [f, write]]
    catalog:
      - {{name: read, type: input, {left}}}
      - {{name: names, type: table, key: id, {right}}}
      - {{name: f, type: function, {f}}}
      - {{name: write, type: output, plugin: stdout}}
"""
JOIN = "join: {table: names, key: id, as: n}"
WINDOW = """
    windows:
      - {{id: w, task: f, type: fixed, aggregation: count, windowKey: tt, range: [1, minute]}}
    triggers: [{{type: segment, threshold: [1, element], sync: "m:f"}}]
"""


@pytest.mark.parametrize(
    ("text", "f", "left", "path", "hint"),
    [
        (ONE_INPUT, "join: {table: names, key: idd}", JSON, "join.key", "did you mean id?"),
        (ONE_INPUT, "join: {table: names, key: idd}", CSV, "join.key", "did you mean id?"),
        (ONE_INPUT, "join: {table: names, key: idd}", PARQUET, "join.key", "did you mean id?"),
        (ONE_INPUT, "join: {table: names, key: idd}", ROWS, "join.key", "did you mean id?"),
        (ONE_INPUT, "join: {table: names, key: xyz}", CSV, "join.key", "they have id or t"),
        (
            ONE_INPUT,
            JOIN + ', fn: "m:f", groupByKey: idd, fluxPolicy: continue',
            TYPED,
            "groupByKey",
            "did you mean id?",
        ),
        (ONE_INPUT + WINDOW, JOIN, TYPED, "spec.windows[0].windowKey", "did you mean t?"),
    ],
)
def test_a_key_that_no_segment_has_is_said(
    text: str, f: str, left: str, path: str, hint: str, settings: Settings
) -> None:
    job = parse_mapping(manifest(text.format(left=left, right=TYPED, f=f)))
    (problem,) = keys_in_vain(job, settings)
    where = path if path.startswith("spec") else f"spec.catalog[2].{path}"
    assert (problem.path, problem.hint) == (where, hint)
    assert "do not have" in problem.message


def test_keys_of_both_sides_and_of_tables_are_looked_for(settings: Settings) -> None:
    other = "plugin: files, options: {path: other.csv}"
    assert [each.path for each in found(JOINED, JSON, other, settings)] == [
        "spec.catalog[2].right.key"
    ]
    assert [each.path for each in found(LOOKED_UP, JSON, other, settings)] == [
        "spec.catalog[1].key"
    ]


@pytest.mark.parametrize(
    ("f", "left", "more"),
    [
        ("join: {table: names, key: id, as: name}", JSON, ""),
        (
            "join: {table: names, key: part, as: n}",
            "plugin: files, options: {path: in.csv, recordNumber: part}",
            "",
        ),
        ("join: {table: names, key: gone, as: n}", "plugin: files, options: {path: none.csv}", ""),
        (
            "join: {table: names, key: gone, as: n}",
            "plugin: files, options: {path: empty.jsonl}",
            "",
        ),
        ("join: {table: names, key: gone, as: n}", UNKNOWN, ""),
        (
            "join: {table: names, key: gone, as: n}",
            JSON,
            '    lifecycles: [{task: read, calls: "m:f"}]',
        ),
    ],
    ids=["there", "numbered", "no file", "empty", "unknown", "hooks"],
)
def test_what_segments_have_is_not_guessed(
    f: str, left: str, more: str, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    job = parse_mapping(manifest(ONE_INPUT.format(left=left, right=TYPED, f=f) + more))
    assert keys_in_vain(job, settings) == []


def test_what_a_join_adds_is_there_and_what_a_function_makes_is_not_known(
    settings: Settings,
) -> None:
    text = """
    workflow: [[read, named], [named, by], [by, made], [made, last], [last, write]]
    catalog:
      - {name: read, type: input, plugin: files, options: {path: other.csv}}
      - {name: names, type: table, key: id, plugin: files, options: {path: two.csv}}
      - {name: named, type: function, join: {table: names, key: name}}
      - {name: by, type: function, join: {table: names, key: town, as: place}}
      - {name: made, type: function, fn: "m:f", groupByKey: towm, fluxPolicy: continue}
      - {name: last, type: function, join: {table: names, key: gone, as: last}}
      - {name: write, type: output, plugin: stdout}
"""
    assert settings.data_dir is not None
    (Path(settings.data_dir) / "two.csv").write_text("id,town\na,b\n")
    (problem,) = keys_in_vain(parse_mapping(manifest(text)), settings)
    assert (problem.path, problem.hint) == ("spec.catalog[4].groupByKey", "did you mean town?")
