"""Patterns of keys, with the rules of `glob` for files: `*`, `?` and `[...]` stay within one part
of the path, `**` stands for any number of them, and none matches a leading dot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

_MAGIC = re.compile(r"[*?[]")
_ANY = "**"


def literal_prefix(pattern: str) -> str:
    """What every key that matches begins with, to list no more than needed."""
    found = _MAGIC.search(pattern)
    return pattern[: found.start()] if found else pattern


def matches(pattern: str, key: str) -> bool:
    """Whether a whole key matches."""
    return _match(pattern.split("/"), key.split("/"))


def _match(patterns: Sequence[str], names: Sequence[str]) -> bool:
    if not patterns or not names:
        return not patterns and not names
    first, *rest = patterns
    if first != _ANY:
        return _fits(first, names[0]) and _match(rest, names[1:])
    if not rest:
        return not any(name.startswith(".") for name in names)
    return _match(rest, names) or (not names[0].startswith(".") and _match(patterns, names[1:]))


def _fits(pattern: str, name: str) -> bool:
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatchcase(name, pattern)
