"""Which functions a job names, and where.

They are looked up before a job runs, and a run on one machine imports their modules. Which keys
name functions is known by their kinds, so that a new key needs no line here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onyx.model.job import CatalogEntry, Job
from onyx.model.keys import compound
from onyx.model.keys.kinds import Function
from onyx.model.keys.predicate import Predicate
from onyx.model.manifest import SECTIONS, SPEC
from onyx.model.names import COMBINATORS, COMPARISONS, SQL, is_function
from onyx.model.report import at


def function_names(job: Job) -> Iterator[tuple[str, str]]:
    """(path in the manifest, `package.module:name`) for every function that the job names."""
    for name, section in SECTIONS.items():
        if section is SPEC:
            continue
        for index, entry in enumerate(getattr(job, SPEC.by_yaml[name].field)):
            path = at(f"spec.{name}", index)
            for key in section.keys:
                value = getattr(entry, key.field)
                if isinstance(key.kind, Function | compound.AggregationName | Predicate):
                    yield from _named(at(path, key.yaml), value)
            if isinstance(entry, CatalogEntry):
                for option, value in entry.options.items():
                    yield from _one(f"{path}.options.{option}", value)


def _named(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Functions of a name, of a name with the keys that it takes, or of a composition."""
    if isinstance(value, str):
        yield from _one(path, value)
    elif value and value[0] in COMBINATORS:
        for index, each in enumerate(value[1:], 1):
            yield from _named(at(path, index), each)
    elif value and value[0] not in (*COMPARISONS, SQL):
        yield from _one(at(path, 0), value[0])


def _one(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and is_function(value):
        yield path, value
