"""Sections of keys: reading entries with all of their problems, building and writing them.

A section reads a mapping into a draft, in which a wrong value is `INVALID`; rules look at drafts,
and only a draft without problems becomes a value. The JSON schema of a section is that of its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from onyx.base.structs import is_struct
from onyx.model.keys.key import Key
from onyx.model.keys.kinds import Anything, Choice, Flag, FreeMapping, KeyKind, Schema, Text, refuse
from onyx.model.report import INVALID, Report, at, listed, nearest

_EMPTY: tuple[Any, ...] = (None, "", [], {})

Draft = dict[str, Any]
"""What could be read of an entry, by attribute; wrong keys are there as INVALID."""


class Section:
    """The keys of one kind of entry.

    Args:
        name: In the singular, as messages say it: `catalog entry`.
        doc: What such an entry is.
        keys: Its keys. They are asked for when the first entry is read: most jobs have entries of
            few kinds, and to gather the keys of all takes longer than to read a job.
        make: The class of the finished entry; none when the section is only checked.
    """

    def __init__(
        self,
        name: str,
        doc: str,
        keys: Callable[[], tuple[Key, ...]],
        make: type[Any] | None = None,
    ) -> None:
        self.name = name
        self.doc = doc
        self.make = make
        self._keys = keys

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The keys, in the order in which they are written."""
        return self._keys()

    @cached_property
    def by_yaml(self) -> Mapping[str, Key]:
        """The keys by their names."""
        return MappingProxyType({key.yaml: key for key in self.keys})

    def read(self, value: Any, path: str, report: Report) -> Draft | None:
        """What can be read of `value`; None when it is not even a mapping."""
        if not isinstance(value, dict):
            if value is not INVALID:
                refuse(SectionEntry(self), value, path, report)
            return None
        draft: Draft = {}
        for name, each in value.items():
            key = self.by_yaml.get(name)
            if key is None:
                report.add(at(path, name), f"is not a key of a {self.name}", self._hint(name))
            else:
                draft[key.field] = _read_value(key, each, at(path, name), report)
        for key in self.keys:
            if key.is_mandatory and key.field not in draft:
                report.add(at(path, key.yaml), "is missing", f"give {key.kind.describe()}")
        self.check_by_type(draft, path, report)
        return draft

    def _hint(self, name: str) -> str:
        hint = nearest(name, self.by_yaml)
        if not hint and "options" in self.by_yaml:
            return "what a plugin or function needs goes under options"
        for key in self.keys if not hint else ():
            if isinstance(key.kind, SectionEntry) and name in key.kind.section.by_yaml:
                return f"write it under {key.yaml}"
        return hint or f"known keys: {', '.join(self.by_yaml)}"

    def check_by_type(self, draft: Draft, path: str, report: Report) -> None:
        """The keys that an entry of its type must have, and those that it may; of an entry without
        a type nothing is known."""
        kind = draft.get("type")
        for key in self.keys:
            given = key.field in draft
            needed = kind in key.required_for and not key.filled
            if (
                not given
                and needed
                and not any(self.by_yaml[each].field in draft for each in key.unless)
            ):
                report.add(
                    at(path, key.yaml),
                    f"is missing, but needed for type {kind}",
                    f"give {key.kind.describe()}",
                )
            elif given and not key.allows(kind):
                types = listed(key.allowed_for)
                report.add(at(path, key.yaml), f"is for type {types}, not for {kind}")

    def build(self, draft: Draft, **values: Any) -> Any:
        """The finished entry of a draft without problems. `values`: fields that are no keys."""
        assert self.make is not None, f"{self.name} is only checked"
        for key in self.keys:
            if key.field not in draft:
                continue
            value = draft[key.field]
            if isinstance(key.kind, SectionEntries):
                value = tuple(key.kind.section.build(each) for each in value)
            elif isinstance(key.kind, SectionEntry):
                value = key.kind.section.build(value)
            elif isinstance(value, dict):
                value = MappingProxyType(value)
            values[key.field] = value
        return self.make(**values)

    def write(self, entry: Any) -> dict[str, Any]:
        """The canonical mapping of an entry: keys in the order of the table, no defaults."""
        written: dict[str, Any] = {}
        for key in self.keys:
            value = getattr(entry, key.field)
            if isinstance(key.kind, SectionEntries):
                value = [key.kind.section.write(each) for each in value]
            elif isinstance(key.kind, SectionEntry) and value is not None:
                value = key.kind.section.write(value)
            if key.required or value != key.default:
                written[key.yaml] = _plain(value)
        return written


def _read_value(key: Key, value: Any, path: str, report: Report) -> Any:
    if value is None and not isinstance(key.kind, Anything):
        report.add(path, "has no value (null)", f"remove it, or give {key.kind.describe()}")
        return INVALID
    return key.kind.read(value, path, report)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


class SectionEntry(KeyKind, frozen=True):
    """One entry of a section."""

    section: Section

    def _read(self, value: Any, path: str, report: Report) -> Any:
        draft = self.section.read(value, path, report)
        return INVALID if draft is None else draft

    def _schema(self) -> Schema:
        keys = self.section.keys
        required = [key.yaml for key in keys if key.is_mandatory]
        return {
            "type": "object",
            **({"required": required} if required else {}),
            "properties": {key.yaml: key_schema(key) for key in keys},
        }

    def _describe(self) -> str:
        return f"a mapping with the keys of a {self.section.name}"


class SectionEntries(KeyKind, frozen=True):
    """A list of entries."""

    section: Section
    items_max: int
    map_key: str = ""
    """Key that is unique within the list, so that Kubernetes can merge by it."""

    def _read(self, value: Any, path: str, report: Report) -> Any:
        """A list of drafts; one that is not a mapping is there as None, so that indexes hold."""
        if not isinstance(value, list):
            return refuse(self, value, path, report)
        if len(value) > self.items_max:
            report.add(path, f"has {len(value)} entries, more than {self.items_max}")
            return INVALID
        return [self.section.read(each, at(path, i), report) for i, each in enumerate(value)]

    def _schema(self) -> Schema:
        merge: Schema = {}
        if self.map_key:
            merge = {
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": [self.map_key],
            }
        items = _without_defaults(SectionEntry(self.section).schema())
        return {"type": "array", "maxItems": self.items_max, **merge, "items": items}

    def _describe(self) -> str:
        return f"a list, each {SectionEntry(self.section).describe()}"


def key_schema(key: Key) -> Schema:
    """The schema of a key: its kind's, with a description that says all, and the default.

    A default is left out where the key is not allowed for every type: the API server would write
    it into entries that must not have it.
    """
    schema = {"description": _description(key), **key.kind.schema()}
    if isinstance(key.kind, SectionEntry):
        # An empty mapping, so that the API server fills in the defaults of its keys.
        return schema if key.default is None else {**schema, "default": {}}
    default = _plain(key.default)
    if not key.required and "type" in schema and not key.allowed_for and default not in _EMPTY:
        schema["default"] = default
    return schema


def _description(key: Key) -> str:
    """What `kubectl explain` shows: it has neither bounds nor units nor defaults of its own."""
    default = key.filled or shown_default(key.default)
    return " ".join(
        [
            key.doc,
            *([] if isinstance(key.kind, _PLAIN) else [f"Value: {key.kind.describe()}."]),
            *([f"Only for type {', '.join(key.allowed_for)}."] if key.allowed_for else []),
            *([key.restriction] if key.restriction else []),
            *([f"Default: {default}."] if default and not key.is_mandatory else []),
        ]
    )


_PLAIN = (Anything, Choice, SectionEntries, SectionEntry, Flag, FreeMapping, Text)
"""Kinds of which the type and the words that may stand there say enough."""


def shown_default(default: Any) -> str:
    """A default in words; nothing when it is empty, or a value with keys of its own."""
    if default in _EMPTY or default == () or is_struct(type(default)):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple | list):
        return f"[{', '.join(map(str, default))}]"
    return str(default)


def _without_defaults(schema: Schema) -> Schema:
    """A schema whose defaults are the parser's only.

    kubectl sends a list as a whole if it differs from the stored one: with defaults filled in by
    the API server, `kubectl apply` of an unchanged file would say `configured` each time.
    """
    found = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in schema:
        found["properties"] = {
            name: _without_defaults(each) for name, each in schema["properties"].items()
        }
    return found
