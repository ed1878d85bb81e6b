"""Tables and joins in a manifest. What is refused by key is in `bad/`."""

from __future__ import annotations

import pytest

from onyx.base.structs import fields
from onyx.client.submissions import submission
from onyx.errors import ManifestError
from onyx.ids import JobId
from onyx.model.job import CatalogEntry
from onyx.model.names import yaml_key
from onyx.model.notices import notices
from onyx.model.parsing.job import parse_manifest, parse_mapping, to_mapping
from onyx.model.workflow import looked_up
from onyx.spark.compiler.refusals import refusals

JOB = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: job}
spec:
    workflow: [[read, work], [work, write]]
    catalog:
      - {name: read, type: input, plugin: files, options: {path: in.jsonl}}
      - {name: work, type: function, fn: "f:work", tables: [users, rates, users],
         join: {table: users, key: [who, place], as: user, default: {name: nobody}}}
      - {name: write, type: output, plugin: files, options: {path: out}}
      - {name: users, type: table, plugin: PLUGIN, key: [id, city], schema: {id: int64}MORE,
         options: {path: users}}
      - {name: rates, type: table, plugin: files, key: id, options: {path: rates}}
"""


def text(plugin: str = "files", more: str = "") -> str:
    return JOB.replace("PLUGIN", plugin).replace("MORE", more)


def test_a_job_with_tables_is_itself_after_a_round_trip() -> None:
    job = parse_manifest(text())
    join = job.entry("work").join
    assert join is not None
    assert (join.key, join.under, join.default) == (("who", "place"), "user", {"name": "nobody"})
    assert parse_mapping(to_mapping(job)) == job
    assert not notices(job)


def test_a_task_looks_up_each_table_once() -> None:
    job = parse_manifest(text())
    assert looked_up(job.entry("work")) == ("users", "rates")
    assert looked_up(job.entry("read")) == ()


def test_no_peer_is_asked_for_a_table() -> None:
    spec = submission(JobId("job"), parse_manifest(text()), "0" * 64, "balanced").spec
    assert [task.name for task in spec.tasks] == ["read", "work", "write"]


SAID = {
    "schema": "{id: int64}", "refresh": "[1, minute]", "versionKey": "since", "doc": "all users",
    "medium": "files", "partitioned": "false",
}  # fmt: skip
OTHERWISE = ("name", "type", "plugin", "options", "key", "schema")
"""Keys that the table has above."""


@pytest.mark.parametrize("key", [yaml_key(each.name) for each in fields(CatalogEntry)])
def test_a_table_has_no_key_that_says_how_segments_pass(key: str) -> None:
    if key in OTHERWISE:
        return
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text(more=f", {key}: {SAID.get(key, '[1, none]')}, minPeers: 0"))
    paths = [problem.path for problem in caught.value.problems]
    assert (f"spec.catalog[3].{key}" in paths) == (key not in SAID)


def test_spark_reads_tables_as_it_reads_inputs() -> None:
    job = parse_manifest(text("channel").replace("spec:", "spec:\n    engine: spark", 1))
    (problem,) = refusals(job)
    assert problem.path == "spec.catalog[3].plugin"
    assert not refusals(parse_manifest(text().replace("spec:", "spec:\n    engine: spark", 1)))
