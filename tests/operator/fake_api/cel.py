"""CEL rules of a CRD (`x-kubernetes-validations`), evaluated with the library cel-python.

A rule sees `self`, and on an update `oldSelf`. As on the real server, a rule that names oldSelf is
passed over where there is no old value, and no rule runs again on a value that did not change. The
library interprets slowly, so results are kept: a rule is a pure function of its values. What the
library cannot evaluate (functions that Kubernetes adds to CEL) is an error of the test bed and
raised as such, never a rule silently passed over.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import celpy
from tests.operator.fake_api.errors import Cause

_ABSENT = object()
_RESERVED = (
    "as break const continue else for function if import in let loop package namespace return"
)
_FIELD = re.compile(r"\b(?:self|oldSelf)\b(?:\.(\w+))?")
_ENVIRONMENT = celpy.Environment()


class CannotEvaluate(Exception):
    """A rule uses what the library does not know."""


class Rules:
    """All rules within one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    def causes(self, value: Any, old: Any = None) -> list[Cause]:
        """What the rules say against `value`, as pairs of path and message."""
        return list(_walk(value, _ABSENT if old is None else old, self._schema, ""))


def _walk(value: Any, old: Any, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if value == old:
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"] and old is _ABSENT:
            continue
        if why := _broken(rule, value, old, schema):
            yield (path + rule.get("fieldPath", "")) or "<root>", f"Invalid value: {why}"
    if isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties")
        for key, each in value.items():
            inner = known.get(key, other if isinstance(other, Mapping) else None)
            if inner is not None:
                before = old.get(key, _ABSENT) if isinstance(old, dict) else _ABSENT
                yield from _walk(each, before, inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            before = _counterpart(each, old, schema)
            yield from _walk(each, before, schema.get("items", {}), f"{path}[{index}]")


def _counterpart(item: Any, old: Any, schema: Mapping[str, Any]) -> Any:
    """The old item that this one replaces: only lists of type map can tell."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return _ABSENT
    keys = schema["x-kubernetes-list-map-keys"]
    same = [each for each in old if all(each.get(key) == item.get(key) for key in keys)]
    return same[0] if same else _ABSENT


def _broken(rule: Mapping[str, Any], value: Any, old: Any, schema: Mapping[str, Any]) -> str:
    """Why the rule does not hold; empty if it does."""
    names = rule["rule"] + rule.get("messageExpression", "")
    values = {"self": _shaped(_seen(value, names), schema)}
    if "oldSelf" in names:
        values["oldSelf"] = _shaped(_seen(old, names), schema)
    text = json.dumps(values)
    failed = _evaluate(rule["rule"], text)
    if failed == "":
        return ""
    if expression := rule.get("messageExpression"):
        return str(_run(expression, text))
    return str(rule.get("message") or failed)


def _seen(value: Any, names: str) -> Any:
    """What a rule sees: of an object only the keys that it names, of metadata only the names.

    For speed: what is seen is the key under which results are kept.
    """
    if not isinstance(value, dict):
        return value
    keys = set(_FIELD.findall(names))
    if "" not in keys:
        value = {key: each for key, each in value.items() if key in keys}
    if "apiVersion" in value or "metadata" in value:
        metadata = value.get("metadata") or {}
        kept = {key: metadata[key] for key in ("name", "generateName") if key in metadata}
        value = {**value, "metadata": kept}
    return value


@functools.lru_cache(maxsize=100_000)
def _evaluate(expression: str, values: str) -> str:
    try:
        holds = _run(expression, values)
    except celpy.CELEvalError as error:
        if re.search("undeclared reference to|unknown function", str(error)):
            raise CannotEvaluate(expression) from error
        return f"rule evaluation error: {expression}"
    return "" if holds else f"failed rule: {expression}"


def _run(expression: str, values: str) -> Any:
    context = {key: celpy.json_to_cel(value) for key, value in json.loads(values).items()}
    return _program(expression).evaluate(context)


@functools.lru_cache(maxsize=1000)
def _program(expression: str) -> celpy.Runner:
    return _ENVIRONMENT.program(_ENVIRONMENT.compile(expression))


def _shaped(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value as rules see it: escaped names, and a number of type `number` is a float."""
    if isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties")
        loose = other if isinstance(other, Mapping) else {}
        return {
            f"__{key}__" if key in known and key in _RESERVED.split() else key: _shaped(
                each, known.get(key, loose)
            )
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_shaped(each, schema.get("items", {})) for each in value]
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
