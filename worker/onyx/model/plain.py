"""Is a value plain data? The first check of everything that comes from outside.

A manifest is JSON data: mappings with text keys, lists, text, numbers, true, false and null, of
bounded depth and count. What passes here can be stored, hashed and sent unchanged; whatever a YAML
library or a Python caller could slip in besides (dates, NaN, huge integers, lone surrogates) is
named and refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from onyx.model.report import INVALID, Report, at, show

MANIFEST_BYTES_MAX = 1_048_576
DEPTH_MAX = 32
VALUES_MAX = 20_000
INTEGER_MAX = 2**63 - 1
INTEGER_MIN = -(2**63)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class _Walk:
    """One pass over a value, counting as it goes."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.values = 0

    def visit(self, value: Any, path: str, depth: int) -> Any:
        self.values += 1
        if self.values > VALUES_MAX:
            self.report.end(f"has more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            self.report.unreadable(path, f"is nested more than {DEPTH_MAX} levels deep")
            return INVALID
        if isinstance(value, Mapping):
            return self._mapping(value, path, depth)
        if isinstance(value, (list, tuple)):
            return [self.visit(each, at(path, i), depth + 1) for i, each in enumerate(value)]
        return self._scalar(value, path)

    def _mapping(self, value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, each in value.items():
            if not isinstance(key, str) or _UNSTORABLE.search(key):
                self.report.add(path, f"has the key {show(key)}, but keys are text", "quote it")
                continue
            result[str(key)] = self.visit(each, at(path, key), depth + 1)
        return result

    def _scalar(self, value: Any, path: str) -> Any:
        wrong = _wrong(value)
        if wrong:
            self.report.unreadable(path, *wrong)
            return INVALID
        return value


_LARGE = "write it as text; a condition compares with it in SQL or in a function"


def _wrong(value: Any) -> tuple[str, str] | None:
    if value is None or value is INVALID or isinstance(value, bool):
        return None
    if isinstance(value, str):
        if _UNSTORABLE.search(value):
            return "contains a NUL or a lone surrogate, which is not text", ""
        return None
    if isinstance(value, int):
        fits = INTEGER_MIN <= value <= INTEGER_MAX
        return None if fits else ("is an integer beyond 64 bits", _LARGE)
    if isinstance(value, float):
        if math.isfinite(value):
            return None
        return "is not a finite number", "NaN and infinity cannot be stored"
    return f"is {show(value)}, which is not plain data", "write it as text, in quotes"


def plain(value: Any, report: Report) -> Any:
    """A copy of `value` in lists, dicts and scalars; unusable parts are reported and INVALID."""
    return _Walk(report).visit(value, "", 0)
