"""Putting a job together from parts, in Python.

A plugin or a library of tasks hands out *bundles*: a catalog entry with the lifecycles, flow
conditions, windows and triggers that go with it. `add_task` adds one to the spec of a job that is
being built, after checking the bundle on its own, so that a mistake is told where it was made. The
finished spec is checked as a whole by `parse_mapping`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx.errors import ManifestError, Problem
from onyx.model.information import SECTIONS
from onyx.model.keys.section import Section
from onyx.model.parsing.job import check_entry
from onyx.model.parsing.plain import plain
from onyx.model.report import ROOT, Report, at

_LISTS = ("lifecycles", "flowConditions", "windows", "triggers")


def add_task(
    spec: Mapping[str, Any],
    bundle: Mapping[str, Any],
    options: Mapping[str, Section] | None = None,
) -> dict[str, Any]:
    """The spec with the parts of a bundle added; `spec` itself is left as it is.

    Args:
        spec: the spec of a job, complete or not.
        bundle: `{"task": catalog entry, "lifecycles": [...], "flowConditions": [...],
            "windows": [...], "triggers": [...]}`; only the task is needed.
        options: what the `options` of the bundle's entries must look like, by the key of their
            section: `{"catalog": Section(...)}`.

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


def _check(section: str, index: int, entry: Any, options: Section | None) -> tuple[Problem, ...]:
    assert section in SECTIONS
    path = "task" if section == "catalog" else at(section, index)
    given = entry.get("options", {}) if isinstance(entry, Mapping) else {}
    wrong = () if options is None else check_options(options, given, at(path, "options"))
    return (*check_entry(section, entry, path), *wrong)


def check_options(section: Section, options: Any, path: str = "options") -> tuple[Problem, ...]:
    """What is wrong with the `options` of a plugin or function that declares them as a section.

    A plugin's author writes the keys with the kinds of `onyx.model.keys`; the problem of an unknown
    key names the nearest known one, as everywhere in a manifest.
    """
    report = Report()
    section.read(plain(options, report), path or ROOT, report)
    return tuple(report.problems())
