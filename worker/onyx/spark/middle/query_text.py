"""What the text of `sparkSql` may not say, so that a manifest runs no code of its own.

Words are looked for in the whole text, literals and comments too: what is a literal depends on
Spark's settings, and a reader that saw it otherwise than Spark would be a way around.
"""

from __future__ import annotations

import re

_FIRST = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|\()*(\w*)", re.DOTALL)
_BEGIN = frozenset({"select", "with", "from", "values", "table"})
_CODE = re.compile(r"\b(try_reflect|reflect|java_method|identifier)\b", re.IGNORECASE)
_PROGRAM = re.compile(r"\busing\b(?!\s*\()", re.IGNORECASE)
_FORM = "must be one query: write `select ... from segments`"


def why_refused(text: str) -> str:
    """Why a text is not run by Spark; empty if Spark may look at it."""
    first = _FIRST.match(text)
    word = "" if first is None else first.group(1)
    if word.lower() not in _BEGIN:
        return f"{f'begins with {word}' if word else 'has no query'}, and {_FORM}"
    code = _CODE.search(text)
    if code:
        return f"has {code.group(1)}, which calls code by its name: write a sparkStage for it"
    if _PROGRAM.search(text):
        return "has using, which runs a program; a join is written `using (column)`"
    return ""
