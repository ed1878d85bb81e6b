"""Putting a job together from parts, in Python, and checking a part on its own.

A plugin or a library of tasks hands out *bundles*: a catalog entry with the lifecycles, flow
conditions, windows and triggers that go with it. `add_task` adds one to the spec of a job that is
being built, after checking the bundle on its own, so that a problem is reported where it was made.
`parse_mapping` checks the finished spec as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from onyx.errors import ManifestError, Problem
from onyx.model.manifest import SECTIONS, SPEC
from onyx.model.parsing.mapping import check_one
from onyx.model.plain import plain
from onyx.model.report import Report, at

CheckOptions = Callable[[Mapping[str, Any]], Iterable[Problem]]
"""What is wrong with options, each problem with the option's name as its path."""
_LISTS = ("lifecycles", "flowConditions", "windows", "triggers")


def add_task(
    spec: Mapping[str, Any],
    bundle: Mapping[str, Any],
    options: Mapping[str, CheckOptions] | None = None,
) -> dict[str, Any]:
    """The spec with the parts of a bundle added; `spec` itself is left as it is.

    Args:
        spec: the spec of a job, complete or not.
        bundle: `{"task": catalog entry, "lifecycles": [...], "flowConditions": [...],
            "windows": [...], "triggers": [...]}`; only the task is needed.
        options: what checks the `options` of the bundle's entries, by the key of their section,
            such as `{"catalog": lambda options: check_options(options, MyOptions)[1]}`.

    Raises:
        ManifestError: the bundle is wrong; paths begin with its own keys.
    """
    parts = {"catalog": [bundle.get("task")]} | {key: list(bundle.get(key, ())) for key in _LISTS}
    problems = [
        problem
        for section, entries in parts.items()
        for index, entry in enumerate(entries)
        for problem in _check(section, index, entry, (options or {}).get(section))
    ]
    problems += [
        Problem(key, "is not a part of a bundle", f"known parts: task, {', '.join(_LISTS)}")
        for key in bundle
        if key not in ("task", *_LISTS)
    ]
    if problems:
        raise ManifestError(problems)
    added = {key: [*spec.get(key, ()), *entries] for key, entries in parts.items() if entries}
    return {**spec, **added}


def _check(
    section: str, index: int, entry: Any, options: CheckOptions | None
) -> tuple[Problem, ...]:
    assert section in SECTIONS
    path = "task" if section == "catalog" else at(section, index)
    given = entry.get("options", {}) if isinstance(entry, Mapping) else {}
    wrong = () if options is None or not isinstance(given, Mapping) else options(given)
    return (
        *check_entry(section, entry, path),
        *(replace(each, path=f"{path}.options.{each.path}") for each in wrong),
    )


def check_entry(section: str, value: Any, path: str = "") -> tuple[Problem, ...]:
    """What is wrong with a single entry, or another part of a spec, on its own.

    Rules that need the rest of the job are not checked.

    Args:
        section: key of the spec: `catalog`, `flowConditions`, ... for one entry of it, or any
            other (`workflow`) for its value.
        value: plain data in the shape of the manifest.
        path: where it stands, for the problems' paths.

    Raises:
        KeyError: a spec has no such section.
    """
    report = Report()
    with report.until_full():
        read = plain(value, report)
        if section in SECTIONS:
            draft = SECTIONS[section].read(read, path, report)
            if draft is not None:
                check_one(section, draft, path, report)
        else:
            SPEC.by_yaml[section].kind.read(read, path, report)
    return tuple(report.problems())
