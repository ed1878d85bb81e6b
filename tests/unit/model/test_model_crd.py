"""The custom resource definition is structural, small and fresh."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from onyx.model import generate
from onyx.model.cluster import CLUSTER
from onyx.model.crd import cluster as crd_cluster
from onyx.model.crd import job as crd
from onyx.model.crd import parts as crd_parts
from onyx.model.manifest import OBJECT_SPEC, SECTIONS
from onyx.model.parsing.job import job_hash, parse_manifest, parse_mapping

ROOT = Path(__file__).parents[3]
DEFINITIONS = {"job": crd.definition(), "cluster": crd_cluster.definition()}
SCHEMAS = {
    name: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name, each in DEFINITIONS.items()
}
SCHEMA = SCHEMAS["job"]
EACH = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
ALLOWED = {
    "description", "type", "format", "properties", "required", "items", "enum", "pattern",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "default",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
    "additionalProperties", "maxProperties",
}  # fmt: skip


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}[]")


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """What the API server stores: defaults filled in, unknown keys pruned."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if schema.get("type") == "object" and "properties" in schema:
        filled = {
            name: value[name] if name in value else child.get("default")
            for name, child in schema["properties"].items()
            if name in value or "default" in child
        }
        return {
            name: with_defaults(schema["properties"][name], each) for name, each in filled.items()
        }
    if schema.get("type") == "array":
        return [with_defaults(schema["items"], each) for each in value]
    return value


@EACH
def test_the_schema_is_structural(schema: dict[str, Any]) -> None:
    for path, node in nodes(schema):
        assert set(node) <= ALLOWED, path
        free = node.get("x-kubernetes-preserve-unknown-fields") or node.get(
            "x-kubernetes-int-or-string"
        )
        assert "type" in node or free, f"{path} has no type"
        assert ("items" in node) == (node.get("type") == "array"), path
        assert set(node.get("required", ())) <= set(node.get("properties", {})), path
        if "pattern" in node:
            re.compile(node["pattern"])
        if path:
            assert "description" in node or path.endswith("[]") or path.count(".") == 1, path


@EACH
def test_everything_that_a_rule_or_a_list_goes_over_is_bounded(schema: dict[str, Any]) -> None:
    for path, node in nodes(schema["properties"]["spec"]):
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path
            assert not node.get("properties"), path
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node, path


@EACH
def test_keys_of_map_lists_are_required(schema: dict[str, Any]) -> None:
    for path, node in nodes(schema):
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in node["items"]["required"], path


@EACH
def test_rules_use_only_keys_that_cel_can_see(schema: dict[str, Any]) -> None:
    for path, node in nodes(schema):
        for rule in node.get("x-kubernetes-validations", ()):
            assert rule["message"]
            for key in re.findall(r"self\.(\w+)", rule["rule"]):
                assert "type" in node["properties"][key], f"{path}: {rule['rule']}"


def test_every_key_of_the_model_is_in_the_schema_and_no_other() -> None:
    spec = SCHEMA["properties"]["spec"]
    for name, section in SECTIONS.items():
        node = spec if name == "spec" else spec["properties"][name]["items"]
        keys = OBJECT_SPEC.keys if name == "spec" else section.keys
        assert list(node["properties"]) == [key.yaml for key in keys]


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS.keys())
def test_the_file_is_small_and_has_no_anchors(definition: dict[str, Any]) -> None:
    text = crd_parts.written(definition)
    assert len(text) < 200_000  # kubectl apply takes 262,144 bytes
    assert not any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text))
    assert yaml.safe_load(text) == json.loads(json.dumps(definition))


def test_what_the_api_server_fills_in_does_not_change_a_job() -> None:
    text = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: job}
spec:
  workflow: [[read, work], [work, write]]
  catalog:
    - {name: read, type: input, plugin: files, batchSize: 100, options: {path: in.jsonl}}
    - {name: work, type: function, fn: "app:work", batchSize: 100, deduplicate: false}
    - {name: write, type: output, plugin: files, batchSize: 100}
  flowConditions: [{from: work, to: [write], predicate: "app:p"}]
  lifecycles: [{task: all, calls: "app:calls"}]
  windows: [{id: w, task: work, type: session, aggregation: count, windowKey: t,
             timeoutGap: [1, minute]}]
  triggers: [{windowId: w, type: timer, period: [1, second], refinement: discarding,
              sync: "app:sync"}]
"""
    job = parse_manifest(text)
    stored = yaml.safe_load(text)
    stored["spec"] = with_defaults(SCHEMA["properties"]["spec"], stored["spec"])
    assert stored["spec"]["taskScheduler"] == "balanced"
    written = yaml.safe_load(text)["spec"]
    changed = [key for key, value in written.items() if stored["spec"][key] != value]
    assert changed == [], "lists stay as they are, or kubectl apply would send them each time"
    assert job_hash(parse_mapping(stored)) == job_hash(job)


def test_what_kubectl_explains_has_units_defaults_and_limits() -> None:
    entry = SCHEMA["properties"]["spec"]["properties"]["catalog"]["items"]["properties"]
    assert entry["inputRetryTimeout"]["description"] == (
        "Interval between two checks for segments to replay. Value: an integer of milliseconds "
        'from 1 to 86400000, or a time as in "60s", "1 minute" or [1, minute]. Only for type '
        "input. Not under guarantee: at-most-once, which replays nothing. Default: 1000."
    )
    assert "Only for type input." in entry["maxPending"]["description"]
    assert entry["deduplicate"]["description"].endswith("uniquenessKey, else true.")
    for name, section in (("job", OBJECT_SPEC), ("cluster", CLUSTER)):
        properties = SCHEMAS[name]["properties"]["spec"]["properties"]
        for key in section.keys:
            if isinstance(key.default, int) or (isinstance(key.default, str) and key.default):
                assert "Default: " in properties[key.yaml]["description"], key.yaml


def test_the_generated_files_are_fresh() -> None:
    assert generate.stale(ROOT) == [], "run python -m onyx.model.generate"


def test_a_stale_file_is_noticed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
    (tmp_path / "docs" / "reference" / "job.md").write_text("old")
    assert generate.main(["--check"], tmp_path) == 1
    assert "job.md is stale" in capsys.readouterr().err
