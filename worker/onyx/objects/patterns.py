"""Patterns of keys, with the rules of `glob` for files: `*`, `?` and `[...]` stay within one part
of the path, `**` stands for any number of them, and none matches a leading dot.

The library's own translation of patterns (`fnmatch`) was rejected: its `*` crosses slashes.
"""

from __future__ import annotations

import re

_MAGIC = re.compile(r"[*?[]")


def literal_prefix(pattern: str) -> str:
    """What every key that matches begins with, to list no more than needed."""
    found = _MAGIC.search(pattern)
    return pattern[: found.start()] if found else pattern


def compiled(pattern: str) -> re.Pattern[str]:
    """An expression that matches whole keys."""
    parts = pattern.split("/")
    text = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            text += r"(?:[^/.][^/]*/)*" + (r"[^/.][^/]*" if last else "")
        else:
            text += _part(part) + ("" if last else "/")
    return re.compile(text + r"\Z", re.S)


def _part(part: str) -> str:
    text = "" if not part or part.startswith(".") else r"(?!\.)"
    position = 0
    while position < len(part):
        character = part[position]
        position += 1
        if character == "*":
            text += "[^/]*"
        elif character == "?":
            text += "[^/]"
        elif character == "[" and (end := part.find("]", position + 2)) > 0:
            chosen = part[position:end].replace("\\", "\\\\").replace("[", "\\[")
            text += "[" + ("^" + chosen[1:] if chosen.startswith("!") else chosen) + "]"
            position = end + 1
        else:
            text += re.escape(character)
    return text
