"""Checks a part of a spec on its own, for tools and plugins that make parts of a job."""

from __future__ import annotations

from typing import Any

from onyx.errors import Problem
from onyx.model.manifest import SECTIONS, SPEC
from onyx.model.parsing.job_draft import check_one
from onyx.model.plain import plain
from onyx.model.report import Report


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
