"""Server-side apply: who owns which field, who may change it, and what an apply removes.

Fields are paths: tuples of steps, where a step is a key of an object, the keys of an item of a
list, or "." for such an item itself. Ownership is kept in `metadata.managedFields` as on the real
server (fieldsV1), so that kubectl can read it. Lists without keys are owned as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.operator.fake_api.errors import ApiError
from tests.operator.fake_api.kinds import Kind
from tests.operator.fake_api.patches import MERGE_KEYS
from tests.operator.fake_api.values import clone

Path = tuple[str, ...]
Owners = dict[tuple[str, str, str], set[Path]]
"""Fields by (manager, operation, subresource)."""
_OF_THE_SERVER = """name namespace uid resourceVersion creationTimestamp generation managedFields
deletionTimestamp deletionGracePeriodSeconds selfLink generateName"""
_NEVER_OWNED = {
    ("f:apiVersion",),
    ("f:kind",),
    *(("f:metadata", f"f:{key}") for key in _OF_THE_SERVER.split()),
}


SET = ("",)
"""The keys of a list whose items are values and there once."""


def list_keys(schema: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """The keys by which items of this list are distinguished; empty for an atomic list."""
    if schema:
        if schema.get("x-kubernetes-list-type") == "map":
            return tuple(schema["x-kubernetes-list-map-keys"])
        return SET if schema.get("x-kubernetes-list-type") == "set" else ()
    return (MERGE_KEYS[field],) if field in MERGE_KEYS else ()


def _inner(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    other = schema.get("additionalProperties")
    found = schema.get("properties", {}).get(key, other if isinstance(other, Mapping) else {})
    inner: Mapping[str, Any] = found
    return inner


def _step(item: Any, keys: tuple[str, ...]) -> str:
    if keys == SET:
        return "v:" + json.dumps(item)
    wanted = {key: item.get(key) for key in keys}
    return "k:" + json.dumps(wanted, sort_keys=True, separators=(",", ":"))


def leaves(value: Any, schema: Mapping[str, Any]) -> dict[Path, Any]:
    """All fields in `value`, each with what is there."""
    return dict(_leaves(value, schema, (), ""))


def _leaves(
    value: Any, schema: Mapping[str, Any], at: Path, field: str
) -> Iterator[tuple[Path, Any]]:
    if at in _NEVER_OWNED:
        return
    keys = list_keys(schema, field)
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, _inner(schema, key), (*at, f"f:{key}"), key)
    elif isinstance(value, list) and value and keys:
        for each in value:
            item = (*at, _step(each, keys))
            if keys == SET:
                yield item, each
                continue
            yield (*item, "."), True
            yield from _leaves(each, schema.get("items", {}), item, "")
    elif at:
        yield at, value


def find(value: Any, path: Path) -> Any:
    """The value at a path; None where there is none."""
    for step in path:
        if step == ".":
            return value is not None
        if step.startswith("f:"):
            value = value.get(step[2:]) if isinstance(value, dict) else None
        else:
            value = next((e for e in value or () if _is_item(e, step)), None)
    return value


def _is_item(item: Any, step: str) -> bool:
    if step.startswith("v:"):
        return bool(item == json.loads(step[2:]))
    return all(item.get(key) == value for key, value in json.loads(step[2:]).items())


def without(value: Any, path: Path) -> None:
    """Remove what is at a path, and objects on the way that are empty then."""
    step, rest = path[0], path[1:]
    inner = find(value, (step,))
    if inner is None:
        return
    if rest == (".",) or step.startswith("v:"):
        value.remove(inner)
    elif step.startswith("k:"):
        if rest[0][2:] not in json.loads(step[2:]):
            without(inner, rest)
    else:
        if rest:
            without(inner, rest)
        if not rest or inner in ({}, []):
            del value[step[2:]]


def merge(value: Any, applied: Any, schema: Mapping[str, Any], field: str = "") -> Any:
    """The live value with what is applied on top."""
    keys = list_keys(schema, field)
    if isinstance(applied, dict) and isinstance(value, dict):
        result = dict(value)
        for key, each in applied.items():
            result[key] = merge(value.get(key), each, _inner(schema, key), key)
        return result
    if isinstance(applied, list) and isinstance(value, list) and keys:
        by_key = {_step(each, keys): each for each in value}
        for each in applied:
            step = _step(each, keys)
            by_key[step] = merge(by_key.get(step), each, dict(schema.get("items", {})))
        return list(by_key.values())
    return clone(applied)


def apply(
    kind: Kind,
    live: dict[str, Any],
    applied: dict[str, Any],
    *,
    manager: str,
    force: bool,
    subresource: str = "",
) -> dict[str, Any]:
    """The object after an apply. Raises ApiError (409) if others own what this would change."""
    me = (manager, "Apply", subresource)
    owners = owners_of(live)
    wanted = set(leaves(applied, kind.schema))
    before = owners.get(me, set())
    result = merge(live, applied, kind.schema)
    conflicts: dict[str, list[str]] = {}
    for other, fields in owners.items():
        if other == me:
            continue
        for path in sorted(_touched(wanted, fields)):
            if find(live, path) != find(result, path):
                who = f'conflict with "{other[0]}"'
                if other[1] == "Update":
                    who += f" using {kind.api_version}"
                conflicts.setdefault(who, []).append(_readable(path))
                fields.discard(path)
    if conflicts and not force:
        raise _conflict(conflicts)
    held = set().union(*(fields for other, fields in owners.items() if other != me))
    result = clone(result)
    for path in sorted(before - wanted, key=len, reverse=True):
        if path not in held and not any(each[: len(path)] == path for each in wanted | held):
            without(result, path)
    owners[me] = wanted
    return with_owners(kind, result, owners)


def _touched(wanted: set[Path], owned: set[Path]) -> set[Path]:
    prefixes = {path[:length] for path in wanted for length in range(1, len(path) + 1)}
    return {path for path in owned if path in prefixes}


def updated(
    kind: Kind, old: dict[str, Any] | None, new: dict[str, Any], manager: str, subresource: str
) -> dict[str, Any]:
    """The object with what changed since `old` owned by `manager`."""
    owners = owners_of(old or {})
    me = (manager, "Update", subresource)
    before, after = leaves(old or {}, kind.schema), leaves(new, kind.schema)
    present = set(after)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    for other, fields in owners.items():
        fields &= present
        if other != me:
            fields -= changed
    owners[me] = owners.get(me, set()) | changed
    return with_owners(kind, new, owners)


def owners_of(value: Mapping[str, Any]) -> Owners:
    owners: Owners = {}
    for entry in value.get("metadata", {}).get("managedFields", ()):
        me = (entry["manager"], entry["operation"], entry.get("subresource", ""))
        owners[me] = set(_paths(entry["fieldsV1"]))
    return owners


def _paths(fields: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    if not fields and at:
        yield at
    for step, inner in fields.items():
        yield from _paths(inner, (*at, step))


def with_owners(kind: Kind, value: dict[str, Any], owners: Owners) -> dict[str, Any]:
    entries = []
    for (manager, operation, subresource), paths in sorted(owners.items()):
        if not paths:
            continue
        tree: dict[str, Any] = {}
        for path in sorted(paths):
            place = tree
            for step in path:
                place = place.setdefault(step, {})
        entry = {
            "manager": manager,
            "operation": operation,
            "apiVersion": kind.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": tree,
        }
        entries.append({**entry, "subresource": subresource} if subresource else entry)
    return {**value, "metadata": {**value["metadata"], "managedFields": entries}}


def _readable(path: Path) -> str:
    return "".join(
        f".{step[2:]}" if step.startswith("f:") else f"[{step[2:].strip('{}')}]" for step in path
    )


def _conflict(conflicts: Mapping[str, list[str]]) -> ApiError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": who,
            "field": field,
        }
        for who, fields in conflicts.items()
        for field in fields
    ]
    plural = "conflict" if len(causes) == 1 else "conflicts"
    message = f"Apply failed with {len(causes)} {plural}: " + ", ".join(
        f"{cause['message']}: {cause['field']}" for cause in causes
    )
    return ApiError(409, "Conflict", message, {"causes": causes})
