"""Which functions a job names, and where: to look them up before it runs, and to know the modules
that a laptop run has to load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onyx.model.job import Job
from onyx.model.names import is_function, yaml_key

_OPERATORS = frozenset({"and", "or", "not"})


def function_names(job: Job) -> Iterator[tuple[str, str]]:
    """(path in the manifest, `package.module:name`) for every function that the job names."""
    for index, entry in enumerate(job.catalog):
        path = f"spec.catalog[{index}]"
        for attribute in ("fn", "group_by_fn", "assign_watermark_fn", "plugin"):
            yield from _one(f"{path}.{yaml_key(attribute)}", getattr(entry, attribute))
        for key, value in entry.options.items():
            yield from _one(f"{path}.options.{key}", value)
    for index, condition in enumerate(job.flow_conditions):
        path = f"spec.flowConditions[{index}]"
        yield from _one(f"{path}.postTransform", condition.post_transform)
        yield from _predicate(f"{path}.predicate", condition.predicate)
    for index, lifecycle in enumerate(job.lifecycles):
        yield from _one(f"spec.lifecycles[{index}].calls", lifecycle.calls)
    for index, window in enumerate(job.windows):
        name = window.aggregation
        path = f"spec.windows[{index}].aggregation"
        yield from _one(path, name) if isinstance(name, str) else _one(f"{path}[0]", name[0])
    for index, trigger in enumerate(job.triggers):
        for attribute in ("type", "refinement", "sync", "emit", "pred"):
            path = f"spec.triggers[{index}].{yaml_key(attribute)}"
            yield from _one(path, getattr(trigger, attribute))


def _one(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and is_function(value):
        yield path, value


def _predicate(path: str, predicate: Any) -> Iterator[tuple[str, str]]:
    if isinstance(predicate, str):
        yield from _one(path, predicate)
    elif predicate and predicate[0] in _OPERATORS:
        for index, each in enumerate(predicate[1:], 1):
            yield from _predicate(f"{path}[{index}]", each)
    elif predicate:
        yield from _one(f"{path}[0]", predicate[0])
