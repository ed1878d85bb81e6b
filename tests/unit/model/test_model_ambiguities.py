"""A manifest that says one thing here and another to kubectl is warned of, with its place."""

from __future__ import annotations

import json

import pytest

from onyx.errors import ManifestError
from onyx.model.parsing.job import parse_mapping
from onyx.model.parsing.text import ambiguities

JOB = """apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: job}
spec:
  workflow: [[read, write]]
  catalog:
    - name: read
      type: input
      plugin: sequence
      batchSize: 10
      options: {segments: [{KEY: 1}, {KEY: 2}]}
    - {name: write, type: output, plugin: blackhole, batchSize: 10}
"""


@pytest.mark.parametrize(
    ("word", "read"), [("n", "false"), ("N", "false"), ("y", "true"), ("Y", "true")]
)
def test_a_letter_that_kubectl_takes_for_a_boolean_is_told_once(word: str, read: str) -> None:
    (found,) = ambiguities(JOB.replace("KEY", word), "job.yaml")
    message = f"spec.catalog[0].options.segments[0].{word}: {word} without quotes is text here"
    assert str(found).startswith(f"job.yaml:11: {message}, but {read} to kubectl")


@pytest.mark.parametrize("word", ['"n"', "'y'", "name", "ny", "x"])
def test_what_both_read_alike_is_not(word: str) -> None:
    assert ambiguities(JOB.replace("KEY", word), "job.yaml") == []


def test_json_is_never_ambiguous() -> None:
    assert ambiguities(json.dumps({"n": "y"}).encode(), "job.json") == []


def test_a_boolean_in_the_place_of_text_says_where_it_may_come_from() -> None:
    catalog = [
        {"name": False, "type": "input", "plugin": "sequence", "batchSize": 10},
        {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 10},
    ]
    spec = {"workflow": [["n", "write"]], "catalog": catalog}
    body = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "job"}}
    with pytest.raises(ManifestError, match="to kubectl y, n, yes, no, on and off without quotes"):
        parse_mapping({**body, "spec": spec})
