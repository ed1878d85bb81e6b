"""A CRD's structural schema at work: pruning, defaults, validation.

The real server does these in this order on each write, and so does this. Validation of the plain
keywords is left to `jsonschema`; what Kubernetes adds (list types, int-or-string, nullable) is
done here, CEL rules in `cel.py`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
from tests.operator.fake_api.cel import Rules
from tests.operator.fake_api.errors import Cause
from tests.operator.fake_api.values import clone

Schema = Mapping[str, Any]
_AT_ROOT = {"apiVersion", "kind", "metadata"}
_OURS = {"default", "description", "title", "format"}


class SchemaOf:
    """The schema of one CRD, compiled once."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._validators = {
            key: jsonschema.Draft202012Validator(_plain(inner))
            for key, inner in schema.get("properties", {}).items()
            if key != "metadata"
        }
        self.rules = Rules(schema)

    def prune(self, value: dict[str, Any]) -> list[str]:
        """Remove in place what the schema does not know; returns the paths of what was removed."""
        kept = {key: value.pop(key) for key in _AT_ROOT & set(value)}
        schema = {
            **self._schema,
            "properties": {
                key: each
                for key, each in self._schema.get("properties", {}).items()
                if key not in _AT_ROOT
            },
        }
        removed = list(_prune(value, schema, ""))
        value.update(kept)
        return removed

    def default(self, value: dict[str, Any], *, keep_nulls: bool) -> None:
        """Set in place what is absent and has a default; drop nulls where none is allowed."""
        if not keep_nulls:
            _drop_nulls(value, self._schema)
        _default(value, self._schema)

    def causes(self, value: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        """What is wrong, as pairs of path and text; rules run only on what is otherwise right.

        What stands in `old` already is right.
        """
        required = self._schema.get("required", ())
        wrong = {(key, "Required value") for key in required if key not in value}
        for key, validator in self._validators.items():
            if key in value and (old is None or old.get(key) != value[key]):
                errors = validator.iter_errors(value[key])
                wrong |= {cause for error in errors for cause in _causes(error, key)}
                inner = self._schema["properties"][key]
                wrong |= set(_list_types(value[key], inner, key))
        return sorted(wrong) or self.rules.causes(value, old)


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> SchemaOf:
    return SchemaOf(json.loads(text))


def schema_of(schema: Schema) -> SchemaOf:
    """The compiled form, shared by all who ask for the same schema."""
    return _compiled(json.dumps(schema, sort_keys=True))


def _plain(schema: Any) -> Any:
    """The schema without what is Kubernetes' own."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    plain: dict[str, Any] = {}
    for key, each in schema.items():
        if key == "properties":
            plain[key] = {name: _plain(inner) for name, inner in each.items()}
        elif key in ("enum", "required", "pattern"):
            plain[key] = each
        elif not key.startswith("x-kubernetes-") and key not in _OURS and key != "nullable":
            plain[key] = _plain(each)
    if schema.get("nullable") and "type" in plain:
        plain["type"] = [plain["type"], "null"]
        if "enum" in plain:
            plain["enum"] = [*plain["enum"], None]
    if schema.get("x-kubernetes-int-or-string"):
        plain["type"] = ["integer", "string"]
    return plain


def _prune(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _prune(each, schema.get("items", {}), f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    known, other = schema.get("properties", {}), schema.get("additionalProperties")
    for key in list(value):
        at = f"{path}.{key}" if path else key
        if key in known:
            yield from _prune(value[key], known[key], at)
        elif isinstance(other, Mapping):
            yield from _prune(value[key], other, at)
        elif not other and not schema.get("x-kubernetes-preserve-unknown-fields"):
            del value[key]
            yield at


def _drop_nulls(value: Any, schema: Schema) -> None:
    if isinstance(value, list):
        for each in value:
            _drop_nulls(each, schema.get("items", {}))
    if not isinstance(value, dict):
        return
    known, other = schema.get("properties", {}), schema.get("additionalProperties")
    for key in list(value):
        inner = known.get(key, other if isinstance(other, Mapping) else None)
        if inner is not None and value[key] is None and not inner.get("nullable"):
            del value[key]
        elif inner is not None:
            _drop_nulls(value[key], inner)


def _default(value: Any, schema: Schema) -> None:
    if isinstance(value, list):
        for each in value:
            _default(each, schema.get("items", {}))
    if not isinstance(value, dict):
        return
    known, other = schema.get("properties", {}), schema.get("additionalProperties")
    for key, inner in known.items():
        if "default" in inner and key not in value:
            value[key] = clone(inner["default"])
        if key in value:
            _default(value[key], inner)
    if isinstance(other, Mapping):
        for key in value.keys() - known.keys():
            _default(value[key], other)


def _causes(error: jsonschema.ValidationError, key: str) -> list[Cause]:
    steps = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.absolute_path]
    path = key + "".join(steps)
    value, limit = error.instance, error.validator_value
    shown = json.dumps(value) if isinstance(value, str | int | float) else f'"{_type(value)}"'
    body = f"Invalid value: {shown}: {path} in body"
    match error.validator:
        case "required":
            missing = [each for each in limit if each not in value]
            return [(f"{path}.{each}", "Required value") for each in missing]
        case "type":
            types = limit if isinstance(limit, str) else " or ".join(limit)
            is_a = _type(value)
            text = f'Invalid value: "{is_a}": {path} in body must be of type {types}: "{is_a}"'
        case "enum":
            text = f"Unsupported value: {shown}: supported values: " + ", ".join(
                json.dumps(each) for each in limit
            )
        case "minimum":
            text = f"{body} should be greater than or equal to {limit}"
        case "maximum":
            text = f"{body} should be less than or equal to {limit}"
        case "pattern":
            text = f"{body} should match '{limit}'"
        case "maxLength":
            text = f"Too long: may not be more than {limit} bytes"
        case "maxItems":
            text = f"Too many: {len(value)}: must have at most {limit} items"
        case _:
            text = f"Invalid value: {error.message}"
    return [(path, text)]


def _type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
    return names.get(type(value), "null" if value is None else "number")


def _list_types(value: Any, schema: Schema, path: str) -> list[Cause]:
    found: list[Cause] = []
    if isinstance(value, list):
        found += _duplicates(value, schema, path)
        for index, each in enumerate(value):
            found += _list_types(each, schema.get("items", {}), f"{path}[{index}]")
    elif isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties")
        for key, each in value.items():
            inner = known.get(key, other if isinstance(other, Mapping) else {})
            found += _list_types(each, inner, f"{path}.{key}".lstrip("."))
    return found


def _duplicates(value: list[Any], schema: Schema, path: str) -> list[Cause]:
    how = schema.get("x-kubernetes-list-type", "atomic")
    if how == "atomic":
        return []
    keys = schema.get("x-kubernetes-list-map-keys", [])
    seen: set[str] = set()
    found = []
    for index, each in enumerate(value):
        is_item = how == "map" and isinstance(each, dict)
        part = {key: each.get(key) for key in keys} if is_item else each
        text = json.dumps(part, sort_keys=True, separators=(",", ":"))
        if text in seen:
            found.append((f"{path}[{index}]", f"Duplicate value: {text}"))
        seen.add(text)
    return found
