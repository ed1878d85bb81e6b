"""From a manifest of any kind to its draft, or to all of its problems as one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.errors import ManifestError
from onyx.model.keys.section import Draft
from onyx.model.parsing.text import read_text
from onyx.model.plain import plain
from onyx.model.report import INVALID, Report

Check = Callable[[Any, Report], Draft]
"""Makes a draft of plain values; a draft with problems is never used."""


def draft_of_text(text: str | bytes, source: str, check: Check) -> Draft:
    """The draft of YAML or JSON; problems have the line in `source`.

    Raises:
        ManifestError: with every problem, each with its path, file and line.
    """
    report = Report()
    value, lines = read_text(text, report)
    draft = {} if value is INVALID else check(plain(value, report), report)
    if report:
        raise ManifestError(report.problems(lines, source))
    return draft


def draft_of(value: Any, check: Check) -> Draft:
    """The draft of a manifest that was read already: a Kubernetes object, or a Python dict.

    Raises:
        ManifestError: with every problem, each with its path.
    """
    report = Report()
    draft = check(plain(value, report), report)
    if report:
        raise ManifestError(report.problems())
    return draft
