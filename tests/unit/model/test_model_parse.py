"""Good manifests, and what holds for reading any."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from onyx.errors import ManifestError, Problem
from onyx.model.bundle import check_entry
from onyx.model.functions import function_names
from onyx.model.job import CatalogEntry, FlowCondition, Job, Lifecycle, Trigger, Window
from onyx.model.parsing.job import job_hash, parse_manifest, parse_mapping, to_mapping

FLIGHTS = """\
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: flights, labels: {team: data}}
spec:
  workflow: [[read, parse], [parse, late]]
  catalog:
    - {name: read, type: input, plugin: files, batchSize: 1000, maxPeers: 2,
       options: {path: "data/flights*.csv", format: csv}}
    - {name: parse, type: function, fn: "flights.tasks:parse", batchSize: 500, deduplicate: false,
       params: [minDelay], options: {minDelay: 15}}
    - {name: late, type: output, plugin: "flights.sinks:store", batchSize: 1000}
  flowConditions:
    - {from: parse, to: [late], options: {minDelay: 15},
       predicate: [and, "flights.tasks:flown", [not, ["flights.tasks:is_late", minDelay]]]}
  lifecycles: [{task: all, calls: "flights.tasks:log_calls"}]
  windows:
    - {id: hourly, task: parse, type: fixed, aggregation: [sum, delay], windowKey: time,
       range: [1, hours]}
  triggers:
    - {id: each-hour, windowId: hourly, type: watermark, refinement: discarding,
       sync: "flights.sinks:store"}
  metadata: {owner: me}
"""
JOB = Job(
    name="flights",
    workflow=(("read", "parse"), ("parse", "late")),
    catalog=(
        CatalogEntry(
            "read",
            "input",
            1000,
            plugin="files",
            max_peers=2,
            options={"path": "data/flights*.csv", "format": "csv"},
        ),
        CatalogEntry(
            "parse",
            "function",
            500,
            fn="flights.tasks:parse",
            deduplicate=False,
            params=("minDelay",),
            options={"minDelay": 15},
        ),
        CatalogEntry("late", "output", 1000, plugin="flights.sinks:store"),
    ),
    flow_conditions=(
        FlowCondition(
            "parse",
            ("late",),
            ("and", "flights.tasks:flown", ("not", ("flights.tasks:is_late", "minDelay"))),
            options={"minDelay": 15},
        ),
    ),
    lifecycles=(Lifecycle("all", "flights.tasks:log_calls"),),
    windows=(
        Window("hourly", "parse", "fixed", ("sum", "delay"), window_key="time", range=(1, "hours")),
    ),
    triggers=(
        Trigger(
            "hourly",
            "watermark",
            id="each-hour",
            refinement="discarding",
            sync="flights.sinks:store",
        ),
    ),
    metadata={"owner": "me"},
)


def problems_of(mapping: dict[str, Any]) -> dict[str, Problem]:
    with pytest.raises(ManifestError) as caught:
        parse_mapping(mapping)
    return {problem.path: problem for problem in caught.value.problems}


def test_a_manifest_becomes_a_job() -> None:
    assert parse_manifest(FLIGHTS) == JOB


def test_comparisons_are_read_and_written_with_the_types_of_their_values() -> None:
    comparisons = '[and, [">", delay, 15.0], [in, carrier, [AA, 3, true]], [not, [is-null, tail]]]'
    text = FLIGHTS.replace(
        '[and, "flights.tasks:flown", [not, ["flights.tasks:is_late", minDelay]]]', comparisons
    )
    job = parse_manifest(text)
    predicate = job.flow_conditions[0].predicate
    assert predicate == (
        "and",
        (">", "delay", 15.0),
        ("in", "carrier", ("AA", 3, True)),
        ("not", ("is-null", "tail")),
    )
    assert type(predicate[1][2]) is float
    assert parse_manifest(json.dumps(to_mapping(job))) == job
    assert [path for path, _ in function_names(job) if "flowConditions" in path] == []


def test_json_is_read_like_yaml() -> None:
    assert parse_manifest(json.dumps(to_mapping(JOB)).encode()) == JOB


def test_what_kubernetes_adds_to_an_object_is_taken() -> None:
    mapping = to_mapping(JOB)
    mapping["metadata"] |= {"uid": "1-2", "generation": 3, "managedFields": [{}]}
    mapping["status"] = {"phase": "Running"}
    assert parse_mapping(mapping) == JOB


def test_a_byte_order_mark_is_skipped() -> None:
    assert parse_manifest(b"\xef\xbb\xbf" + FLIGHTS.encode()) == JOB


def test_quoted_scalars_stay_text() -> None:
    text = FLIGHTS.replace("owner: me", 'a: "on", b: "012", c: "2013-01-01", d: ":x", e: y')
    metadata = parse_manifest(text).metadata
    assert dict(metadata) == {"a": "on", "b": "012", "c": "2013-01-01", "d": ":x", "e": "y"}


def test_numbers_follow_yaml_1_2() -> None:
    text = FLIGHTS.replace("owner: me", "a: 1, b: -0.5, c: 1e3, d: 0, e: 1.2.3, f: true, g: 1.")
    assert dict(parse_manifest(text).metadata) == {
        "a": 1, "b": -0.5, "c": 1000.0, "d": 0, "e": "1.2.3", "f": True, "g": 1.0,
    }  # fmt: skip


def test_problems_come_in_the_order_of_the_file_with_file_and_line() -> None:
    text = FLIGHTS.replace("batchSize: 500", "batchSize: 0").replace("kind: OnyxJob", "kind: Job")
    text = text.replace("windowId: hourly", "windowId: daily")
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, "jobs/flights.yaml")
    assert [(problem.where, problem.path) for problem in caught.value.problems] == [
        ("jobs/flights.yaml:2", "kind"),
        ("jobs/flights.yaml:9", "spec.catalog[1].batchSize"),
        ("jobs/flights.yaml:20", "spec.triggers[0].windowId"),
    ]
    assert str(caught.value).startswith("jobs/flights.yaml:2: kind: is ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FLIGHTS + "# " + "x" * 1_048_576, "bytes, more than 1048576 (1 MiB)"),
        (FLIGHTS + "# " + "x" * 2_000_000, "bytes, more than 1048576 (1 MiB)"),
        (FLIGHTS.replace("owner: me", f"x: [{'1,' * 20_001}]"), "has more than 20000 values"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        ("a: \ud800", "is not"),
        ("[" * 100_000, "is nested more than 32 levels deep"),
        ("? [a, b]\n: c\n", "has the key a mapping or list, but keys are text"),
        ("*a", "is an alias (*a)"),
        ("a: b: c", "is not YAML"),
        ("\x07", "is not YAML"),
        ("name,born\nAda,1815\n", "and no job file"),
        ("[1]", "is a list, and no job file"),
        ("spec:\n\tcatalog:\n", "a tab in line 2"),
    ],
)
def test_text_that_is_no_manifest_is_told_in_one_message(text: str | bytes, message: str) -> None:
    with pytest.raises(ManifestError, match="manifest") as caught:
        parse_manifest(text)
    assert message in str(caught.value)


def test_no_more_than_a_hundred_problems_are_listed() -> None:
    mapping = to_mapping(JOB)
    mapping["spec"] |= {f"key{number}": 1 for number in range(150)}
    problems = problems_of(mapping)
    assert len(problems) == 101
    assert (
        problems["manifest"].message == "and more problems, which are shown when these are mended"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "is true, but must be an integer"),
        (float("nan"), "is not a finite number"),
        (float("inf"), "is not a finite number"),
        (2**63, "is an integer beyond 64 bits"),
        pytest.param(10**5000, "is an integer beyond 64 bits", id="5001 digits"),
        (date(2013, 1, 1), "is a value of type date, which is not plain data"),
        (b"10", "is a value of type bytes, which is not plain data"),
        ({1, 2}, "is a value of type set, which is not plain data"),
        ("\ud800", "contains a NUL or a lone surrogate"),
        (1.0, "is the number 1.0, but must be an integer"),
        (object(), "is a value of type object"),
    ],
)
def test_a_python_value_that_is_no_count_is_told(value: Any, message: str) -> None:
    mapping = to_mapping(JOB)
    mapping["spec"]["catalog"][0]["batchSize"] = value
    problems = problems_of(mapping)
    assert list(problems) == ["spec.catalog[0].batchSize"]
    assert message in problems["spec.catalog[0].batchSize"].message


def test_a_mapping_that_contains_itself_is_refused() -> None:
    mapping = to_mapping(JOB)
    mapping["spec"]["metadata"] = {"self": mapping}
    assert any("nested more than" in each.message for each in problems_of(mapping).values())


def test_a_spec_that_is_too_large_as_json_is_refused() -> None:
    mapping = to_mapping(JOB)
    mapping["spec"]["metadata"] = {"x": "y" * 1_048_576}
    assert "1048576 bytes" in problems_of(mapping)["spec"].message


def test_keys_that_are_no_text_are_told() -> None:
    mapping = to_mapping(JOB)
    mapping["spec"]["metadata"] = {1: 2}
    assert "keys are text" in problems_of(mapping)["spec.metadata"].message


def test_what_the_caller_gave_is_not_shared_with_the_job() -> None:
    mapping = to_mapping(JOB)
    job = parse_mapping(mapping)
    mapping["spec"]["catalog"][1]["options"]["minDelay"] = 99
    assert job.entry("parse").options["minDelay"] == 15
    with pytest.raises(TypeError):
        job.entry("parse").options["minDelay"] = 99  # type: ignore[index]


def test_one_entry_can_be_checked_on_its_own() -> None:
    entry = {"name": "read", "type": "input", "batchSize": 10, "plugin": "files", "minPeers": 0}
    assert [problem.path for problem in check_entry("catalog", entry)] == ["minPeers"]
    assert check_entry("catalog", {**entry, "minPeers": 1}) == ()
    assert [problem.path for problem in check_entry("workflow", [["a", 1]])] == ["[0][1]"]


def test_a_guarantee_of_exactly_once_needs_no_uniqueness_key() -> None:
    mapping = to_mapping(JOB)
    mapping["spec"]["catalog"][1]["deduplicate"] = True
    assert list(problems_of(mapping)) == ["spec.catalog[1].uniquenessKey"]
    mapping["spec"]["guarantee"] = "exactly-once"
    assert parse_mapping(mapping).guarantee == "exactly-once"


def test_defaults_are_left_out_of_the_canonical_form() -> None:
    mapping = to_mapping(JOB)
    assert mapping["spec"]["catalog"][2] == {
        "name": "late", "type": "output", "batchSize": 1000, "plugin": "flights.sinks:store",
    }  # fmt: skip
    assert "taskScheduler" not in mapping["spec"]


def test_the_hash_is_that_of_the_job_and_not_of_its_spelling() -> None:
    spelt_out = FLIGHTS.replace(
        "spec:\n", "spec:\n  taskScheduler: balanced\n  guarantee: at-least-once\n"
    )
    assert job_hash(parse_manifest(spelt_out)) == job_hash(JOB)
    assert job_hash(parse_manifest(FLIGHTS.replace("15", "16"))) != job_hash(JOB)


def test_the_hash_of_a_stored_job_never_changes() -> None:
    # A new value here means that every job looks changed after an upgrade.
    assert job_hash(JOB) == "676c9ca95d2d861b812babf8d939e621c31fc26bdb244c42791de92f4647744c"


def test_equal_keys_in_json_are_refused_like_in_yaml() -> None:
    text = json.dumps(to_mapping(JOB), indent=1).replace('"kind":', '"kind": "x",\n "kind":')
    with pytest.raises(ManifestError, match=r"kind: is given twice, first in line 3 \(keep one\)"):
        parse_manifest(text)


def test_problems_in_json_have_lines_too() -> None:
    mapping = to_mapping(JOB)
    mapping["kind"] = "Job"
    with pytest.raises(ManifestError, match=r"^job\.json:3: kind: "):
        parse_manifest(json.dumps(mapping, indent=1), "job.json")


@pytest.mark.parametrize("version", ["onyx.dev/v1beta1", "onyx.dev/v1alpha1"])
def test_the_former_name_of_the_version_makes_no_other_job(version: str) -> None:
    named = {**to_mapping(JOB), "apiVersion": version}
    assert job_hash(parse_mapping(named)) == job_hash(JOB)
