"""Only additive changes of our kinds since the last release; the checker finds all others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.operator.fake_api.schema import schema_of
from tests.support.generated.crd_changes import CURRENT, RELEASED, breaking

RULES = "x-kubernetes-validations"
WIDGET: dict[str, Any] = {
    "spec": {
        "group": "a.dev",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wg"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        RULES: [{"rule": "!has(self.port) || self.type in ['a', 'b']"}],
                        "properties": {
                            "size": {"type": "integer", "minimum": 1, "maximum": 9},
                            "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
                            "free": {"type": "string"},
                            "plugin": {"type": "string", "pattern": "^(a|b|[a-z|]+(:x|y)*)$"},
                            "port": {"x-kubernetes-int-or-string": True},
                            "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}},
                            "labels": {
                                "type": "object",
                                "additionalProperties": {"type": "string"},
                            },
                            "options": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    }
}


def changed(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> dict[str, Any]:
    """The widget after a change of its spec or of its schema."""
    new = copy.deepcopy(WIDGET)
    change(new["spec"], new["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    return new


def of(name: str, **more: Any) -> dict[str, Any]:
    return changed(lambda _, schema: schema["properties"][name].update(more))


def without(name: str, key: str) -> dict[str, Any]:
    return changed(lambda _, schema: schema["properties"][name].pop(key))


def ruled(key: str, types: str) -> dict[str, Any]:
    """The widget with `key` allowed for `types` only."""
    rule = {"rule": f"!has(self.{key}) || self.type in [{types}]"}
    return changed(lambda _, schema: schema.update({RULES: [rule]}))


def left_to_the_parser(reported: str) -> dict[str, Any]:
    """The widget with a default that only the description names."""
    color = {"type": "string", "description": f"Its color. Default: {reported}."}
    return changed(lambda _, schema: schema["properties"].update(color=color))


ADDITIVE = {
    "nothing": WIDGET,
    "a new key": changed(lambda _, schema: schema["properties"].update(new={"type": "string"})),
    "a wider range": of("size", minimum=0, maximum=10),
    "no upper limit": without("size", "maximum"),
    "another choice": of("color", enum=["red", "green", "blue"]),
    "any choice": without("color", "enum"),
    "a first default": of("free", default="x"),
    "a default that is left to the parser": left_to_the_parser("red"),
    "a required key with a default": changed(lambda _, schema: schema.update(required=["color"])),
    "another version": changed(
        lambda spec, _: spec["versions"].append({**spec["versions"][0], "name": "v2"})
    ),
    "another short name": changed(lambda spec, _: spec["names"]["shortNames"].append("w")),
    "a new key for some types": ruled("extra", "'a'"),
    "a key for more types": ruled("port", "'a', 'b', 'c'"),
    "a rule that another key meets, too": changed(
        lambda _, schema: schema[RULES][0].update(
            rule=f"{schema[RULES][0]['rule']} || has(self.size)"
        )
    ),
    "a rule that two other keys meet, too": changed(
        lambda _, schema: schema[RULES][0].update(
            rule=f"{schema[RULES][0]['rule']} || has(self.size) || has(self.color)"
        )
    ),
    "a key for all types": changed(lambda _, schema: schema.pop(RULES)),
    "another alternative": of("plugin", pattern="^(a|b|c|[a-z|]+(:x|y)*)$"),
    "longer texts in a list": of("tags", items={"type": "string", "maxLength": 10}),
}
BREAKING = {
    "size: is gone": changed(lambda _, schema: schema["properties"].pop("size")),
    "size: type: was integer, is string": of("size", type="string"),
    "size: minimum: was 1, is 2": of("size", minimum=2),
    "size: maximum: was 9, is 8": of("size", maximum=8),
    "free: maxLength: was open, is 5": of("free", maxLength=5),
    "free: pattern: was open, is ^a": of("free", pattern="^a"),
    **{
        f"plugin: pattern: was ^(a|b|[a-z|]+(:x|y)*)$, is {pattern}": of("plugin", pattern=pattern)
        for pattern in ("^(a|[a-z|]+(:x|y)*)$", "^(a|b|[a-z|]+(:x)*)$", "^(a|b)|([a-z|]+(:x|y)*)$")
    },
    "free: only ['a'] now": of("free", enum=["a"]),
    "color: 'green' is no choice any more": of("color", enum=["red"]),
    "color: default: was 'red', is 'green'": of("color", default="green"),
    "color: default: was 'red', is None": without("color", "default"),
    "port: x-kubernetes-int-or-string is gone": changed(
        lambda _, schema: schema["properties"].update(port={"type": "integer"})
    ),
    "tags[]: maxLength: was 9, is 8": of("tags", items={"type": "string", "maxLength": 8}),
    "tags: x-kubernetes-list-type: was open, is set": of(
        "tags", **{"x-kubernetes-list-type": "set"}
    ),
    "labels: takes no keys of one's own any more": without("labels", "additionalProperties"),
    "labels.*: type: was string, is integer": of(
        "labels", additionalProperties={"type": "integer"}
    ),
    "options: x-kubernetes-preserve-unknown-fields is gone": without(
        "options", "x-kubernetes-preserve-unknown-fields"
    ),
    "<root>: size is required now": changed(lambda _, schema: schema.update(required=["size"])),
    "size: new rule: self > 1": of("size", **{RULES: [{"rule": "self > 1"}]}),
    "<root>: new rule: !has(self.port) || self.type in ['a']": ruled("port", "'a'"),
    "<root>: new rule: !has(self.size) || self.type in ['a']": ruled("size", "'a'"),
    "version v1 is not served any more": changed(
        lambda spec, _: spec["versions"][0].update(served=False)
    ),
    "subresource status has changed or is gone": changed(
        lambda spec, _: spec["versions"][0].pop("subresources")
    ),
    "scope: was 'Namespaced', is 'Cluster'": changed(lambda spec, _: spec.update(scope="Cluster")),
    "names.kind: was 'Widget', is 'Gadget'": changed(
        lambda spec, _: spec["names"].update(kind="Gadget")
    ),
    "names.shortNames: 'wg' is gone": changed(lambda spec, _: spec["names"].update(shortNames=[])),
}


@pytest.mark.parametrize(
    ("types", "is_breaking"),
    [("'a', 'c'", False), ("'c'", False), ("'a', 'b'", True), ("'b', 'c'", True)],
)
def test_a_key_may_be_needed_for_a_type_that_is_new(types: str, is_breaking: bool) -> None:
    def needing(types: str, choices: list[str]) -> dict[str, Any]:
        rule = {"rule": f"!(self.type in [{types}]) || has(self.port)"}
        kind = {"type": "string", "enum": choices}

        def change(_: Any, schema: dict[str, Any]) -> None:
            schema.update({RULES: [rule]})
            schema["properties"]["type"] = kind

        return changed(change)

    before, after = needing("'a'", ["a", "b"]), needing(types, ["a", "b", "c"])
    assert bool(breaking(before, after)) is is_breaking


@pytest.mark.parametrize("case", ADDITIVE)
def test_what_adds_is_no_breaking_change(case: str) -> None:
    assert breaking(WIDGET, ADDITIVE[case]) == []


@pytest.mark.parametrize("reported", BREAKING)
def test_what_breaks_is_found_and_told(reported: str) -> None:
    assert reported in breaking(WIDGET, BREAKING[reported])


def test_a_default_that_is_told_otherwise_than_it_was_is_another_one() -> None:
    assert breaking(WIDGET, left_to_the_parser("green")) == ["color: default: was 'red', is None"]


@pytest.mark.parametrize("file", sorted(RELEASED.glob("*.yaml")), ids=lambda file: file.stem)
def test_our_kinds_have_only_grown_since_the_last_release(file: Any) -> None:
    released = yaml.safe_load(file.read_text())
    now = yaml.safe_load((CURRENT / file.name).read_text())

    assert breaking(released, now) == [], (
        "stored objects and users' files would break: keep what there was, or serve another version"
    )


def test_every_kind_was_released() -> None:
    assert {file.name for file in RELEASED.glob("*.yaml")} == {
        file.name for file in CURRENT.glob("*.yaml")
    }


def test_defaults_are_valid_and_stable() -> None:
    """A default that its own schema refuses would make the server refuse the CRD."""
    for file in CURRENT.glob("*.yaml"):
        version = yaml.safe_load(file.read_text())["spec"]["versions"][0]
        for path, node in nodes(version["schema"]["openAPIV3Schema"]):
            if "default" in node:
                value = {"it": copy.deepcopy(node["default"])}
                schema = schema_of({"type": "object", "properties": {"it": node}})
                schema.default(value, keep_nulls=False)
                assert schema.causes(value, None) == [], path


def nodes(schema: Any, path: str = "") -> Any:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
