"""What the calls of a builder do to the spec of a manifest: pure, each gives another spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import field

from onyx.builder.values import Plain
from onyx.errors import UserError
from onyx.model.manifest import OBJECT_SPEC
from onyx.model.report import listed, nearest


class ChainEnd(msgspec.Struct, frozen=True):
    """Where a job continues, and what has been said of the task that comes next."""

    at: tuple[str, ...] = ()
    """Tasks from which the next edge begins."""
    task: str | None = None
    """The latest task, which `set` is about."""
    window: str | None = None
    """The latest window, which triggers are about."""
    groups: Plain = field(default_factory=dict)
    """How segments of the next task are grouped."""
    conditions: tuple[Plain, ...] = ()
    """Which segments go to the next task."""


def tasks_of(spec: Mapping[str, Any]) -> list[str]:
    """Names of the tasks."""
    return [entry["name"] for entry in spec.get("catalog", ())]


def entry_of(spec: Mapping[str, Any], task: str) -> Plain:
    """The catalog entry of a task.

    Raises:
        UserError: there is none.
    """
    for entry in spec.get("catalog", ()):
        if entry["name"] == task:
            return dict(entry)
    known = tasks_of(spec)
    hint = nearest(task, known) or (f"it has {listed(known)}" if known else "it has none yet")
    raise UserError(f"the job has no task {task!r}: {hint}")


def with_items(spec: Mapping[str, Any], key: str, items: Iterable[Any]) -> Plain:
    """The spec with more items in a list."""
    more = [*spec.get(key, ()), *items]
    return in_order({**spec, key: more} if more else spec)


def with_entry(spec: Mapping[str, Any], entry: Plain) -> Plain:
    """The spec with another entry for the task that it names."""
    catalog = [entry if each["name"] == entry["name"] else each for each in spec["catalog"]]
    return in_order({**spec, "catalog": catalog})


def merged(entry: Plain, keys: Mapping[str, Any]) -> Plain:
    """An entry with more keys; options are put together."""
    found = {**entry, **keys}
    if "options" in entry and "options" in keys:
        found["options"] = {**entry["options"], **keys["options"]}
    return found


def in_order(spec: Mapping[str, Any]) -> Plain:
    """The spec with its keys in the order of the reference."""
    known = [key.yaml for key in OBJECT_SPEC.keys]
    names = sorted(spec, key=lambda name: known.index(name) if name in known else len(known))
    return {name: spec[name] for name in names}


def joined(spec: Mapping[str, Any], place: ChainEnd, children: tuple[str, ...]) -> Plain:
    """The spec with edges from the place to children, under the conditions that were said.

    Raises:
        UserError: there is no task from which they could begin.
    """
    if not place.at:
        raise UserError("there is no task to go on from: begin with read(), or go to one with at()")
    edges = [[parent, child] for parent in place.at for child in children]
    found = with_items(spec, "workflow", edges)
    ends = {"from": list(place.at), "to": list(children)}
    return with_items(found, "flowConditions", ({**ends, **each} for each in place.conditions))
