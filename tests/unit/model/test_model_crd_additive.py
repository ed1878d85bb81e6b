"""A served version of a CRD only grows: what was applied yesterday can be applied tomorrow.

`served/` holds the definitions of the last release. When a release is made, they are copied there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from onyx.model import crd, crd_cluster

SERVED = sorted((Path(__file__).parent / "served").glob("*.yaml"))
NOW = {
    "onyxcluster": crd_cluster.definition(),
    "onyxjob": crd.definition(),
}
LOWER_BOUNDS = ("minimum", "minLength", "minItems", "minProperties")
UPPER_BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")


def narrowed(old: dict[str, Any], new: dict[str, Any], path: str = "") -> Iterator[str]:
    """Where `new` refuses, or drops, what `old` took."""
    if old.get("type") != new.get("type") and "type" in new:
        yield f"{path}: is now a {new['type']}"
    for bound in LOWER_BOUNDS:
        if new.get(bound, float("-inf")) > old.get(bound, float("-inf")):
            yield f"{path}: {bound} is now {new[bound]}"
    for bound in UPPER_BOUNDS:
        if new.get(bound, float("inf")) < old.get(bound, float("inf")):
            yield f"{path}: {bound} is now {new[bound]}"
    if set(old.get("enum", ())) - set(new.get("enum", old.get("enum", ()))):
        yield f"{path}: words are gone"
    if "enum" in new and "enum" not in old:
        yield f"{path}: only some words are left"
    if new.get("pattern") not in (None, old.get("pattern")):
        yield f"{path}: has another pattern"
    for key in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        yield f"{path}.{key}: is now required"
    if old.get("default", new.get("default")) != new.get("default"):
        yield f"{path}: has another default"
    yield from _inner(old, new, path)


def _inner(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[str]:
    free = new.get("x-kubernetes-preserve-unknown-fields")
    for key, child in old.get("properties", {}).items():
        if key in new.get("properties", {}):
            yield from narrowed(child, new["properties"][key], f"{path}.{key}")
        elif not free:
            yield f"{path}.{key}: is gone"
    for key in ("items", "additionalProperties"):
        if key in old and key in new:
            yield from narrowed(old[key], new[key], f"{path}[]")


def versions(definition: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        each["name"]: each["schema"]["openAPIV3Schema"]
        for each in definition["spec"]["versions"]
        if each["served"]
    }


@pytest.mark.parametrize("path", SERVED, ids=lambda path: path.stem)
def test_every_served_version_takes_what_it_took(path: Path) -> None:
    old = versions(yaml.safe_load(path.read_text()))
    new = versions(NOW[path.stem])

    assert old.keys() <= new.keys()
    assert [each for name in old for each in narrowed(old[name], new[name])] == []


def test_every_definition_is_compared() -> None:
    assert [path.stem for path in SERVED] == sorted(NOW)


SPEC = ("properties", "spec", "properties")


@pytest.mark.parametrize(
    ("keys", "change", "told"),
    [
        (("replicas",), None, ".spec.replicas: is gone"),
        (("replicas", "maximum"), 5, ".spec.replicas: maximum is now 5"),
        (("replicas", "minimum"), 1, ".spec.replicas: minimum is now 1"),
        (("replicas", "default"), 3, ".spec.replicas: has another default"),
        (("replicas", "type"), "string", ".spec.replicas: is now a string"),
        (("image", "pattern"), "a", ".spec.image: has another pattern"),
        (("image", "enum"), ["a"], ".spec.image: only some words are left"),
        (("jobScheduler", "enum"), ["greedy"], ".spec.jobScheduler: words are gone"),
        (("data", "required"), ["claimName", "x"], ".spec.data.x: is now required"),
        (("settings", "maxProperties"), 1, ".spec.settings: maxProperties is now 1"),
        (("env", "items", "properties", "name"), None, ".spec.env[].name: is gone"),
    ],
)
def test_what_narrows_is_noticed(keys: tuple[str, ...], change: Any, told: str) -> None:
    (old,) = versions(NOW["onyxcluster"]).values()
    new = copy.deepcopy(old)
    place: Any = new
    for key in (*SPEC, *keys[:-1]):
        place = place[key]
    if change is None:
        del place[keys[-1]]
    else:
        place[keys[-1]] = change

    assert list(narrowed(old, new)) == [told]


def test_growing_is_fine() -> None:
    (old,) = versions(NOW["onyxcluster"]).values()
    new = copy.deepcopy(old)
    spec = new["properties"]["spec"]["properties"]
    spec["more"] = {"type": "string"}
    spec["replicas"]["maximum"] += 1
    spec["jobScheduler"]["enum"].append("fair")
    del spec["image"]["pattern"]

    assert list(narrowed(old, new)) == []
