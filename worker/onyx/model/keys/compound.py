"""Kinds of values that are made of others: lists, mappings, edges."""

from __future__ import annotations

from typing import Any

from onyx.model.keys.kinds import (
    ANYTHING,
    Function,
    KeyKind,
    PartName,
    Schema,
    Text,
    refuse,
)
from onyx.model.kinds import AGGREGATIONS
from onyx.model.report import INVALID, Report, at, listed

LIST_ITEMS_MAX = 256


class ListOf(KeyKind, frozen=True):
    """A list of one kind."""

    item: KeyKind
    items_min: int = 0
    items_max: int = LIST_ITEMS_MAX

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, list):
            return refuse(self, value, path, report)
        if not self.items_min <= len(value) <= self.items_max:
            report.add(
                path, f"has {len(value)} items, but takes {self.items_min} to {self.items_max}"
            )
            return INVALID
        items = tuple(self.item.read(each, at(path, i), report) for i, each in enumerate(value))
        return INVALID if INVALID in items else items

    def _schema(self) -> Schema:
        least = {"minItems": self.items_min} if self.items_min else {}
        return {"type": "array", **least, "maxItems": self.items_max, "items": self.item.schema()}

    def _describe(self) -> str:
        return f"a list, each {self.item.describe()}"


class MapOf(KeyKind, frozen=True):
    """Values of one kind by names of another."""

    name: KeyKind
    value: KeyKind
    entries_max: int = LIST_ITEMS_MAX

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, dict):
            return refuse(self, value, path, report)
        if len(value) > self.entries_max:
            report.add(path, f"has {len(value)} keys, more than {self.entries_max}")
            return INVALID
        names_read = [self.name.read(name, at(path, name), report) for name in value]
        read = {name: self.value.read(value[name], at(path, name), report) for name in value}
        return INVALID if INVALID in (*names_read, *read.values()) else read

    def _schema(self) -> Schema:
        # A CRD cannot say what keys look like; the parser checks that.
        return {
            "type": "object",
            "maxProperties": self.entries_max,
            "additionalProperties": self.value.schema(),
        }

    def _describe(self) -> str:
        return f"a mapping from {self.name.describe()} to {self.value.describe()}"


class OneOrMore(KeyKind, frozen=True):
    """A single value, or a list of them."""

    item: KeyKind
    words: tuple[str, ...] = ()
    """Words that may stand in place of the list; with words, a single value must be one of them."""
    items_min: int = 1

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if isinstance(value, list):
            return ListOf(self.item, self.items_min).read(value, path, report)
        if not self.words:
            return self.item.read(value, path, report)
        if value in self.words:
            return value
        return refuse(self, value, path, report, "a single task is written as a list of one")

    def _schema(self) -> Schema:
        # Two types cannot be said structurally; the engine checks the shape.
        return dict(ANYTHING)

    def _describe(self) -> str:
        if self.words:
            return f"{listed(self.words)}, or a list, each {self.item.describe()}"
        return f"{self.item.describe()}, or a list of those"


class AggregationName(KeyKind, frozen=True):
    """An aggregation: its name, or `[name, key...]`."""

    def _read(self, value: Any, path: str, report: Report) -> Any:
        name_path = at(path, 0) if isinstance(value, list) else path
        parts = value if isinstance(value, list) else [value]
        if not parts:
            return refuse(self, value, path, report)
        name = Function(tuple(AGGREGATIONS)).read(parts[0], name_path, report)
        keys = ListOf(Text()).read(parts[1:], path, report)
        if name is INVALID or keys is INVALID:
            return INVALID
        return name if not isinstance(value, list) else (name, *keys)

    def _schema(self) -> Schema:
        return dict(ANYTHING)

    def _describe(self) -> str:
        return "the name of an aggregation, or a list of the name and its keys"


class Edge(KeyKind, frozen=True):
    """`[from, to]`."""

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, list) or len(value) != 2:
            return refuse(self, value, path, report)
        ends = tuple(
            PartName("task").read(each, at(path, i), report) for i, each in enumerate(value)
        )
        return INVALID if INVALID in ends else ends

    def _schema(self) -> Schema:
        return {"type": "array", "minItems": 2, "maxItems": 2, "items": PartName("task").schema()}

    def _describe(self) -> str:
        return "an edge as [from, to]"
