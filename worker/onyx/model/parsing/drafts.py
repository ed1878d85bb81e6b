"""From a manifest of any kind to its draft, or to all of its problems as one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.errors import ManifestError
from onyx.model.keys.section import Draft
from onyx.model.plain import plain
from onyx.model.report import Report

Check = Callable[[Any, Report], Draft]
"""Makes a draft of plain values; a draft with problems is never used."""


def draft_of(value: Any, check: Check) -> Draft:
    """The draft of a manifest that was read already: a Kubernetes object, or a Python dict.

    Raises:
        ManifestError: with every problem, each with its path.
    """
    report = Report()
    draft: Draft = {}
    with report.until_full():
        draft = check(plain(value, report), report)
    if report:
        raise ManifestError(report.problems())
    return draft
