"""From the text of a manifest of any kind to its draft.

Apart from `drafts`: what runs jobs reads no text, and needs no parser of YAML.
"""

from __future__ import annotations

from onyx.errors import ManifestError
from onyx.model.keys.section import Draft
from onyx.model.parsing.drafts import Check
from onyx.model.parsing.text import read_text
from onyx.model.plain import plain
from onyx.model.report import INVALID, Report


def draft_of_text(text: str | bytes, source: str, check: Check) -> Draft:
    """The draft of YAML or JSON; problems have the line in `source`.

    Raises:
        ManifestError: with every problem, each with its path, file and line.
    """
    report = Report()
    draft: Draft = {}
    value, lines = read_text(text, report)
    if value is not INVALID:
        with report.until_full():
            draft = check(plain(value, report), report)
    if report:
        raise ManifestError(report.problems(lines, source))
    return draft
