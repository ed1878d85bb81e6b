"""Kinds of values that Kubernetes knows and a job does not: amounts, names of objects."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from onyx.model.keys.kinds import Integer, KeyKind, Schema

_QUANTITY = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
"""What the units of an amount stand for."""
_PERCENT = r"[0-9]{1,3}%"


class Matching(KeyKind, frozen=True):
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


class IntegerOrText(KeyKind, frozen=True):
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


def amount_of(amount: int | str) -> Decimal:
    """What a valid amount of a resource comes to: 1536 for 1.5Ki."""
    number, _, unit = re.fullmatch(_QUANTITY, str(amount)).groups()  # type: ignore[union-attr]
    if unit is None or unit in _FACTORS:
        return Decimal(number) * _FACTORS[unit or ""]
    return Decimal(f"{number}{unit}")


def count_or_percent() -> IntegerOrText:
    """The kind of a value that is a count or a percentage."""
    return IntegerOrText('a count, or a share such as "25%"', _PERCENT)


SECONDS = Integer(0, 86_400, "seconds")
