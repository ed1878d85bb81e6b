"""The module with the keys of a job, each a TypedDict: what `Unpack` takes in a signature."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from onyx.model.job import CatalogEntry, FlowCondition, Lifecycle, Trigger, Window
from onyx.model.keys import compound, durations, kinds
from onyx.model.keys.fields import section_of
from onyx.model.keys.key import Key
from onyx.model.keys.section import Section, SectionEntries, SectionEntry
from onyx.model.manifest import OBJECT_SPEC

_HEAD = '''"""Keys of the parts of a job, with their types: docs/reference says what each means.

Generated from `onyx.model` by `python -m onyx.builder.generate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from onyx.builder.types import Amount, Fn, Time
'''
_PLACED = ("name", "type", "plugin", "spark_stage")
"""Keys of a task that its method of the builder gives."""
_SHARED = "SharedKeys"
_TYPES = ("input", "function", "reduce", "output", "table", "join")


def module() -> str:
    """The text of the module."""
    classes = [*_nested(_of_a_job()), _class("JobKeys", _of_a_job(), "Keys of a job")]
    catalog = [key for key in section_of(CatalogEntry).keys if key.field not in _PLACED]
    classes += _nested(catalog)
    classes += _of_tasks(catalog)
    parts = {
        Window: ("id", "task", "type", "aggregation"),
        Trigger: ("window_id", "type"),
        FlowCondition: ("from_task", "to", "predicate"),
        Lifecycle: ("task", "calls"),
    }
    for part, placed in parts.items():
        keys = [key for key in section_of(part).keys if key.field not in placed]
        doc = f"Keys of a {section_of(part).name}"
        classes.append(_class(f"{part.__name__}Keys", keys, doc))
    return "\n\n".join([_HEAD, *classes])


def _of_tasks(catalog: list[Key]) -> Iterator[str]:
    """A class for each type of tasks, and one for all keys, on one for what all types have."""
    shared = [key for key in catalog if all(map(key.allows, _TYPES))]
    more = [key for key in catalog if key not in shared]
    yield _class(_SHARED, shared, "Keys that tasks of all types have")
    for each in _TYPES:
        mine = [key for key in more if key.allows(each)]
        doc = f"Keys of a task of type {each}"
        yield _class(f"{each.capitalize()}Keys", mine, doc, base=_SHARED)
    yield _class("TaskKeys", more, "Keys of a task of any type", base=_SHARED)


def _of_a_job() -> list[Key]:
    """Keys of a job that are no lists of parts and that stand in place of no job."""
    placed = ("workflow", "job_ref")
    return [
        key
        for key in OBJECT_SPEC.keys
        if not isinstance(key.kind, SectionEntries) and key.field not in placed
    ]


def _nested(keys: Iterable[Key]) -> Iterator[str]:
    """A class for each kind of mapping that keys hold, each once."""
    named: dict[str, list[Key]] = {}
    for key in keys:
        if isinstance(key.kind, SectionEntry):
            named.setdefault(_name(key.kind.section), []).append(key)
    for name, holders in named.items():
        kind = holders[0].kind
        assert isinstance(kind, SectionEntry), "asked above"
        yield from _nested(kind.section.keys)
        held = " and ".join(f"`{key.yaml}`" for key in holders)
        yield _class(name, kind.section.keys, f"Keys of {held}")


def _name(section: Section) -> str:
    return f"{section.name.title().replace(' ', '')}Keys"


def _class(name: str, keys: tuple[Key, ...] | list[Key], doc: str, base: str = "TypedDict") -> str:
    rows = [f"    {key.field}: {_type(key.kind)}" for key in keys]
    return "\n".join([f"class {name}({base}, total=False):", f'    """{doc}."""', "", *rows, ""])


def _type(kind: kinds.KeyKind) -> str:
    match kind:
        case kinds.Choice(words):
            return f"Literal[{', '.join(map(json.dumps, words))}]"
        case compound.OneOrMore(item):
            return f"{_type(item)} | Sequence[{_type(item)}]"
        case compound.ListOf(item):
            return f"Sequence[{_type(item)}]"
        case compound.MapOf(_, value):
            return f"Mapping[str, {_type(value)}]"
        case SectionEntry(section):
            return _name(section)
    return _BY_KIND.get(type(kind)) or _BY_SCHEMA[kind.schema()["type"]]


_BY_KIND: dict[type[kinds.KeyKind], str] = {
    kinds.Function: "Fn",
    kinds.Anything: "Any",
    kinds.FreeMapping: "Mapping[str, Any]",
    kinds.Metadata: "Mapping[str, Any]",
    durations.Amount: "Amount",
    durations.Duration: "Time",
}
_BY_SCHEMA = {"string": "str", "boolean": "bool", "integer": "int", "number": "float"}
"""All others are what JSON has for them."""
