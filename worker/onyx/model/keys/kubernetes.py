"""Kinds of values that Kubernetes knows and a job does not: amounts, names of objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from onyx.model.keys.kinds import Count, Kind, Schema

_QUANTITY = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
_PERCENT = r"[0-9]{1,3}%"


@dataclass(frozen=True, slots=True)
class Matching(Kind):
    """Text of a given form."""

    what: str
    """In a few words, with an article."""
    pattern: str
    """A regular expression for the whole text, in the syntax that Python and RE2 share."""
    hint: str = ""
    characters_max: int = 253

    def _fits(self, value: Any) -> bool:
        text = isinstance(value, str) and len(value) <= self.characters_max
        return text and re.fullmatch(self.pattern, value) is not None

    def _hint(self, value: Any) -> str:
        return self.hint

    def _schema(self) -> Schema:
        pattern = f"^({self.pattern})$"
        return {"type": "string", "maxLength": self.characters_max, "pattern": pattern}

    def _describe(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class IntegerOrText(Kind):
    """An integer from 0, or text of a given form; kept as it was given."""

    what: str
    pattern: str
    hint: str = ""

    def _fits(self, value: Any) -> bool:
        text = isinstance(value, str) and re.fullmatch(self.pattern, value) is not None
        count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return text or count

    def _hint(self, value: Any) -> str:
        return self.hint

    def _schema(self) -> Schema:
        # The pattern holds for text only.
        return {"x-kubernetes-int-or-string": True, "pattern": f"^({self.pattern})$"}

    def _describe(self) -> str:
        return self.what


def quantity() -> IntegerOrText:
    """An amount of a resource."""
    what = "an amount, such as 2, 500m or 1Gi"
    return IntegerOrText(what, _QUANTITY, "a fraction is written in quotes, or as 500m")


def count_or_percent() -> IntegerOrText:
    """So many, or such a share."""
    return IntegerOrText('a count, or a share such as "25%"', _PERCENT)


SECONDS = Count(0, 86_400, "seconds")
