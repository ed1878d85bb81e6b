"""What a job file may leave out: the short form is the same job as the long one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onyx.errors import ManifestError
from onyx.model.canonical import explained, to_mapping
from onyx.model.job import Job
from onyx.model.parsing.job import job_hash, parse_file, parse_manifest
from onyx.model.parsing.writing import as_yaml

STRAIGHT = """
spec:
  catalog:
    - {name: read, plugin: files, options: {path: people.csv}}
    - {name: age, fn: "ages:age"}
    - {name: write, plugin: files, options: {path: out}}
"""
STRAIGHT_IN_FULL = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: ages}
spec:
  workflow: [[read, age], [age, write]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: people.csv}}
    - {name: age, type: function, fn: "ages:age"}
    - {name: write, type: output, plugin: files, options: {path: out}}
"""
WINDOWED = """
spec:
  catalog:
    - {name: read, plugin: files, options: {path: orders.csv}, watermarkKey: at}
    - {name: dearest, groupByKey: country, deadLetter: bad}
    - {name: write, plugin: files, options: {path: out}}
    - {name: bad, plugin: files, options: {path: bad}}
  windows:
    - {task: dearest, type: fixed, range: 1 hour, aggregation: [max, amount]}
  triggers:
    - {type: watermark}
"""
"""What only its author can decide."""
WINDOWED_IN_FULL = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: orders}
spec:
  workflow: [[read, dearest], [dearest, write], [dearest, bad]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: orders.csv}, watermarkKey: at}
    - {name: dearest, type: reduce, groupByKey: country, fluxPolicy: continue, deduplicate: false,
       deadLetter: bad}
    - {name: write, type: output, plugin: files, options: {path: out}}
    - {name: bad, type: output, plugin: files, options: {path: bad}}
  windows:
    - {id: dearest, task: dearest, type: fixed, range: 1 hour, aggregation: [max, amount],
       windowKey: at}
  triggers:
    - {windowId: dearest, type: watermark, refinement: accumulating, emit: rows}
"""


LETTERED = """
spec:
  catalog:
    - {name: read, plugin: files, options: {path: people.csv, onBadRecord: deadLetter}}
    - {name: age, fn: "ages:age", deadLetter: dead-letters}
    - {name: write, plugin: files, options: {path: "s3://lake/out/"}}
"""
LETTERED_IN_FULL = """
metadata: {name: ages}
spec:
  workflow: [[read, age], [age, write], [read, dead-letters], [age, dead-letters]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: people.csv, onBadRecord: deadLetter},
       deadLetter: dead-letters}
    - {name: age, type: function, fn: "ages:age", deadLetter: dead-letters}
    - {name: write, type: output, plugin: files, options: {path: "s3://lake/out/"}}
    - {name: dead-letters, type: output, plugin: files, maxPeers: 1,
       options: {path: "s3://lake/out-dead-letters"}}
"""
LETTERED_AS_OTHERS = LETTERED.replace("dead-letters", "bad") + (
    '    - {name: bad, plugin: kafka, options: {topic: bad, bootstrapServers: "k:9092"}}\n'
)


def test_bad_records_go_where_the_only_dead_letters_of_the_job_go() -> None:
    job = parse_manifest(LETTERED_AS_OTHERS, "ages.yaml")
    assert [entry.name for entry in job.catalog] == ["read", "age", "write", "bad"]
    assert job.entry("read").dead_letter == "bad"
    assert ("read", "bad") in job.workflow


def test_one_key_gives_bad_records_a_place_beside_what_the_job_writes() -> None:
    job = parse_manifest(LETTERED.replace(", deadLetter: dead-letters", ""), "ages.yaml")
    assert job.entry("read").dead_letter == "dead-letters"
    assert job.entry("dead-letters").options["path"] == "s3://lake/out-dead-letters"
    assert parse_manifest(as_yaml(to_mapping(job))) == job


@pytest.mark.parametrize(
    ("first", "second", "letters"),
    [
        ("out/revenue", "out/hours/", "out/dead-letters"),
        ("s3://lake/day/revenue", "s3://lake/day/hours", "s3://lake/day/dead-letters"),
        ("s3://lake/revenue", "s3://lake/hours", "s3://lake/revenue-dead-letters"),
        ("revenue", "hours", "revenue-dead-letters"),
        ("/revenue", "/hours", "/revenue-dead-letters"),
        ("../revenue", "../hours", "../revenue-dead-letters"),
        ("out/revenue", "elsewhere/hours", "out/revenue-dead-letters"),
        ("out/revenue", "out/dead-letters", "out/revenue-dead-letters"),
    ],
)
def test_letters_of_a_job_with_several_outputs_lie_in_the_folder_that_has_these(
    first: str, second: str, letters: str
) -> None:
    text = f"""
spec:
  workflow: [[read, first], [read, second]]
  catalog:
    - {{name: read, plugin: files, options: {{path: in.csv, onBadRecord: deadLetter}}}}
    - {{name: first, plugin: files, options: {{path: "{first}"}}}}
    - {{name: second, plugin: files, options: {{path: "{second}"}}}}
"""
    job = parse_manifest(text, "letters.yaml")
    assert job.entry("dead-letters").options["path"] == letters


@pytest.mark.parametrize("path", ["s3://lake", "s3://lake/", ".", "..", "out/..", "/"])
def test_a_place_with_nothing_beside_it_is_said(path: str) -> None:
    with pytest.raises(ManifestError, match="writes no folder beside which") as raised:
        parse_manifest(LETTERED.replace("s3://lake/out/", path), "ages.yaml")
    assert "spec.catalog[0].deadLetter: is missing" in str(raised.value)
    assert "spec.catalog[1].deadLetter: is not in the catalog" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "short", "full"),
    [
        ("ages", STRAIGHT, STRAIGHT_IN_FULL),
        ("orders", WINDOWED, WINDOWED_IN_FULL),
        ("ages", LETTERED, LETTERED_IN_FULL),
    ],
)
def test_what_is_left_out_is_filled_in(name: str, short: str, full: str) -> None:
    job = parse_manifest(short, f"jobs/{name}.yaml")
    assert job == parse_manifest(full)
    assert job_hash(job) == job_hash(parse_manifest(full))
    assert parse_manifest(as_yaml(to_mapping(job))) == job, "what is stored is the full form"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("job.yaml", "job"),
        ("/a/b/Big_Job 2.yml", "big-job-2"),
        ("ages.job.json", "ages-job"),
        (f"{'x' * 80}.yaml", "x" * 63),
    ],
)
def test_a_job_without_a_name_is_called_as_its_file(source: str, name: str) -> None:
    assert parse_manifest(STRAIGHT, source).name == name


@pytest.mark.parametrize("source", ["manifest", "<stdin>", "---.yaml", "日本.yaml"])
def test_a_file_that_gives_no_name_is_asked_for_one(source: str) -> None:
    with pytest.raises(ManifestError, match=r"metadata\.name: is missing \(give the job a name"):
        parse_manifest(STRAIGHT, source)


def job_of(catalog: str, more: str = "") -> Job:
    entries = "".join(f"    - {{{line.strip()}}}\n" for line in catalog.strip().splitlines())
    return parse_manifest(f"spec:\n  catalog:\n{entries}{more}", "job.yaml")


READ = "name: read, plugin: sequence, options: {segments: []}"
WRITE = "name: write, plugin: blackhole"


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ('fn: "m:f"', "function"),
        ('processor: "m:P"', "function"),
        ("sql: select * from segments", "function"),
        ("sparkSql: select * from segments", "function"),
        ('sparkStage: "m:f"', "function"),
    ],
)
def test_what_a_task_does_says_its_type(keys: str, kind: str) -> None:
    assert job_of(f"{READ}\nname: work, {keys}\n{WRITE}").entry("work").type == kind


def test_a_table_is_known_by_its_key_and_is_in_no_edge() -> None:
    table = "name: users, plugin: files, key: id, options: {path: users.csv}"
    job = job_of(f"{READ}\n{table}\nname: look, join: {{table: users, key: user}}\n{WRITE}")
    assert [entry.type for entry in job.catalog] == ["input", "table", "function", "output"]
    assert job.workflow == (("read", "look"), ("look", "write"))


def test_edges_say_which_plugin_reads_and_a_join_is_known_by_its_sides() -> None:
    side = "key: id, at: at"
    job = job_of(
        f"""name: a, plugin: kafka
        name: b, plugin: kafka
        name: both, left: {{task: a, {side}}}, right: {{task: b, {side}}}, range: 1 minute
        name: out, plugin: kafka""",
        "  workflow: [[a, both], [b, both], [both, out]]\n",
    )
    assert [entry.type for entry in job.catalog] == ["input", "input", "join", "output"]
    assert (job.entry("both").flux_policy, job.entry("both").deduplicate) == ("continue", False)


def test_late_segments_have_an_edge_to_the_task_that_gets_them() -> None:
    windows = """  windows:
    - {task: sums, type: fixed, range: 1 hour, windowKey: at, aggregation: count,
       allowedLateness: 1 minute, lateTo: late}
  triggers: [{type: watermark}]
"""
    job = job_of(f"{READ}\nname: sums\n{WRITE}\nname: late, plugin: blackhole", windows)
    assert set(job.workflow) == {("read", "sums"), ("sums", "write"), ("sums", "late")}
    assert job.entry("late").type == "output"


@pytest.mark.parametrize(
    ("guarantee", "keys", "looks"),
    [
        ("at-least-once", "", False),
        ("at-least-once", "uniquenessKey: id", True),
        ("at-least-once", "deduplicate: false", False),
        ("exactly-once", "", True),
        ("at-most-once", "", True),
    ],
)
def test_repeats_are_looked_for_where_they_can_be_known(
    guarantee: str, keys: str, looks: bool
) -> None:
    windows = "  windows: [{task: all, type: global, aggregation: count}]\n  triggers:\n"
    more = f"{windows}    - {{type: watermark}}\n  guarantee: {guarantee}\n".replace("all", "sums")
    job = job_of(f"{READ}\nname: sums, {keys}\n{WRITE}", more)
    assert job.entry("sums").deduplicate is looks


def test_what_stands_there_is_left_as_it_is() -> None:
    text = WINDOWED.replace(
        "groupByKey: country", "groupByKey: country, fluxPolicy: recover, nPeers: 2"
    )
    text = text.replace("{task:", "{id: w, windowKey: other, init: 7, task:")
    text = text.replace("{type: watermark", '{type: watermark, refinement: discarding, emit: "m:f"')
    job = parse_manifest(text, "job.yaml")
    (window,), (trigger,) = job.windows, job.triggers
    assert job.entry("dearest").flux_policy == "recover"
    assert (window.id, window.window_key, window.init) == ("w", "other", 7)
    assert (trigger.window_id, trigger.refinement, trigger.emit) == ("w", "discarding", "m:f")


def test_an_evicting_trigger_gets_no_refinement() -> None:
    text = WINDOWED.replace("{type: watermark", "{type: watermark, postEvictor: [all]")
    assert parse_manifest(text, "job.yaml").triggers[0].refinement is None


@pytest.mark.parametrize(
    "spec",
    [
     {"catalog": 5}, {"catalog": [5]}, {"catalog": []}, {"catalog": [{}]},
     {"catalog": [{"name": 3}]},
     {"catalog": None, "workflow": None}, {"windows": [{}], "triggers": [{}]}, {},
     {"catalog": [{"name": "a"}], "windows": [{"task": "a"}, {"task": 5}], "triggers": [7, {}]},
     {"catalog": [{"name": "a", "plugin": 5}, {"name": "a", "plugin": "x"}], "workflow": [["a"]]},
     {"catalog": [{"name": "a", "deadLetter": "a", "fn": "m:f"}]},
     {"catalog": [{"name": "a", "plugin": "files", "type": "outptu"}]}],
)  # fmt: skip
def test_a_broken_job_is_refused_with_problems(spec: dict[str, Any]) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(as_yaml({"spec": spec}), "job.yaml")


@pytest.mark.parametrize(
    "file",
    sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml")),
    ids=lambda file: "/".join(file.parts[-2:]),
)
def test_an_explained_example_is_the_same_job_and_explains_itself(file: Path) -> None:
    job, declared = parse_file(file.read_text(), str(file))
    text = as_yaml(explained(job, declared))
    again = parse_file(text, "explained")
    assert again == (job, declared)
    assert as_yaml(explained(*again)) == text
