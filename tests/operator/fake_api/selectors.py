"""Label and field selectors, from their text to a predicate."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.operator.fake_api.errors import bad_request
from tests.operator.fake_api.kinds import Kind
from tests.operator.fake_api.paths import value_at

Predicate = Callable[[dict[str, Any]], bool]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<how>in|notin)\s+\((?P<values>[^)]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<how>==|=|!=)\s*(?P<value>\S*)$")
_PRESENT = re.compile(r"^(?P<not>!?)\s*(?P<key>[^=!\s]+)$")


def _split(text: str) -> list[str]:
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _label_term(term: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.match(term):
        key, values = found["key"], {each.strip() for each in found["values"].split(",")}
        if found["how"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUAL.match(term):
        key, value = found["key"], found["value"]
        if found["how"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _PRESENT.match(term):
        key, absent = found["key"], bool(found["not"])
        return lambda labels: (key in labels) != absent
    raise bad_request(f"unable to parse requirement: {term!r}")


def label_selector(text: str) -> Predicate:
    """Raises ApiError (400) for a text that is no label selector."""
    terms = [_label_term(term) for term in _split(text)]

    def matches(thing: dict[str, Any]) -> bool:
        labels = thing["metadata"].get("labels") or {}
        return all(term(labels) for term in terms)

    return matches


def field_selector(text: str, kind: Kind) -> Predicate:
    """Raises ApiError (400) for a field that this kind does not let one select by."""
    allowed = {"metadata.name", "metadata.namespace", *kind.fields}
    terms: list[tuple[str, str, bool]] = []
    for term in _split(text):
        found = _EQUAL.match(term)
        if not found:
            raise bad_request(f"invalid selector: {text!r}; can't understand {term!r}")
        if found["key"] not in allowed:
            raise bad_request(f"field label not supported: {found['key']}")
        terms.append((found["key"], found["value"], found["how"] == "!="))

    def matches(thing: dict[str, Any]) -> bool:
        return all(
            (str(value_at(thing, key) or "") == value) != negated for key, value, negated in terms
        )

    return matches


def selector(kind: Kind, labels: str, fields: str) -> Predicate:
    """Both selectors of a request as one predicate."""
    by_label, by_field = label_selector(labels), field_selector(fields, kind)
    return lambda thing: by_label(thing) and by_field(thing)
