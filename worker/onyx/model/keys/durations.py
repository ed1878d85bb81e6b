"""Amounts and times as people write them: `60s`, `1 minute`, `[1, minute]`, or a plain number.

One reader for all of them, so that every key takes every form. ISO 8601 (`PT1M`) was rejected:
nobody writes it by hand.

The schema of the API server has no type for text or a pair, so it takes anything here, its rules
cannot see these keys, and what is wrong is said by the operator. Rejected: `int-or-string` and
arrays alone, which the API server could check. A job file would work with the command line and be
refused by `kubectl apply`.
"""

from __future__ import annotations

import re
from typing import Any

from onyx.model import names
from onyx.model.keys.kinds import ANYTHING, Choice, Integer, KeyKind, Schema, refuse
from onyx.model.report import INVALID, Report, at

AMOUNT_MAX = 10**12
SHORT = {"ms": "milliseconds", "s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
"""Short names of units of time; `m` is none, for some mean months."""
_TEXT = re.compile(r"\s*([0-9]{1,13})\s*([A-Za-z]+)\s*\Z")


def split(value: Any) -> list[Any] | None:
    """Number and unit of what is written as text or as a pair; None if it is neither."""
    if isinstance(value, str) and (found := _TEXT.match(value)):
        number, unit = found.groups()
        return [int(number), SHORT.get(unit, unit)]
    if isinstance(value, list) and len(value) == 2:
        return [value[0], SHORT.get(value[1], value[1]) if isinstance(value[1], str) else value[1]]
    return None


class Amount(KeyKind, frozen=True):
    """A number with its unit: `[5, minutes]`, `5 minutes`, `300s`."""

    units: tuple[str, ...]
    number_min: int = 1

    def _read(self, value: Any, path: str, report: Report) -> Any:
        pair = split(value)
        if pair is None:
            return refuse(self, value, path, report)
        text = isinstance(value, str)
        paths = (path, path) if text else (at(path, 0), at(path, 1))
        number = Integer(self.number_min, AMOUNT_MAX).read(pair[0], paths[0], report)
        unit = Choice(self.units).read(pair[1], paths[1], report)
        return INVALID if number is INVALID or unit is INVALID else (number, unit)

    def _schema(self) -> Schema:
        return dict(ANYTHING)

    def _describe(self) -> str:
        unit = self.units[0]
        short = next((f' or "5{short}"' for short, name in SHORT.items() if name == unit), "")
        return f'a number and its unit, as in [5, {unit}], "5 {unit}"{short}'


class Duration(KeyKind, frozen=True):
    """Milliseconds as a number, or a time with its unit: `60000`, `60s`, `[1, minute]`."""

    minimum: int
    maximum: int

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if isinstance(value, (str, list)):
            pair = split(value)
            if pair is None:
                return refuse(self, value, path, report)
            read = Amount(names.TIME_UNITS, number_min=0).read(value, path, report)
            if read is INVALID:
                return INVALID
            number, unit = read
            value = number * names.UNIT_MS[unit.removesuffix("s")]
        return self._count.read(value, path, report)

    @property
    def _count(self) -> Integer:
        return Integer(self.minimum, self.maximum, "milliseconds")

    def _schema(self) -> Schema:
        return dict(ANYTHING)

    def _describe(self) -> str:
        return f'{self._count.describe()}, or a time as in "60s", "1 minute" or [1, minute]'
