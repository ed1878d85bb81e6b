"""Comparisons of flow conditions: what they say about one value of a segment.

`[">", key, value]` and its like need no function. They mean what Python means, with these rules:

* None, or a key that is not there: every comparison is false. `!=` is the opposite of `==`, so it
  holds there.
* Numbers are compared as Python compares them, exactly: `1 == 1.0`, and `True == 1`.
* Text in ISO 8601 (`2013-01-05`, `2013-01-05T10:30:00Z`) is a time where the value of the segment
  is a datetime or a date. A date is its midnight, and what has no time zone is in UTC.
* `==` and `in` of different types are false. The others raise a Refusal, so that the segment fails
  as if a function had raised.

A test looks at the type of the value first: what has the usual one costs little more than the
operator itself. For a batch the types of all values are looked at together (`Comparison.of_all`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any

import msgspec
import numpy as np

from onyx.errors import describe_type
from onyx.flow.arrays import Mask
from onyx.flow.instants import since_epoch
from onyx.flow.segment_failure import Refusal

ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
NUMBERS = frozenset({int, float, bool, Decimal})
TIMES = frozenset({datetime, date})
_HASHED = frozenset({*NUMBERS, str, bytes})

_OR_NONE: frozenset[type] = frozenset({NoneType})
Answer = Callable[[Any], Any]
"""An answer about the value of the value of a segment's key, None if it is not there: whether the
comparison holds."""


class Comparison(msgspec.Struct, frozen=True):
    """One comparison of a key with a value."""

    operator: str
    key: str
    value: Any = None
    """What the key is compared with; for `in` a tuple of values."""
    where: str = ""
    """Job, condition and task, for messages."""

    def answer(self) -> Answer:
        """The function that decides."""
        if self.operator == "is-null":
            return _is_null
        if self.operator == "in":
            return _one_of(self.value)
        if self.operator == "==":
            return _equal(self.value)
        if self.operator == "!=":
            equal = _equal(self.value)
            return lambda x: not equal(x)
        return _ordered(self)

    def of_all(self) -> Callable[[list[Any]], Mask | None]:
        """A function that decides about many values, in a third of the time; it gives None where
        one has an unusual type, so that each is to be asked about."""
        usual, decide = _many(self)

        def answers(values: list[Any]) -> Mask | None:
            if usual is not None and not usual.issuperset(map(type, values)):
                return None
            try:
                return np.frombuffer(bytearray(decide(values)), dtype=np.bool_)
            except (TypeError, ArithmeticError):
                return None

        return answers

    def refusal(self, kind: str) -> Refusal:
        """Why a value cannot be compared.

        Args:
            kind: of the value, with an article.
        """
        wanted = "a number" if type(self.value) is not str else "text"
        if type(self.value) is str and "date" in kind:
            wanted = "text that is no date or time in ISO 8601"
        return Refusal(
            f'{self.where}: ["{self.operator}", {self.key}, ...] compares {kind} with {wanted}: '
            f"make key {self.key!r} one type in the task's function, or write the predicate as a "
            "function"
        )


def comparison_of(expression: tuple[Any, ...], where: str) -> Comparison:
    """The comparison that an expression of a job stands for, which has been checked."""
    head, key, *value = expression
    return Comparison(head, key, value[0] if value else None, where)


def instant(text: str) -> datetime | None:
    """The time that ISO 8601 text means; None if it is no such text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _of_text(text: Any) -> timedelta | None:
    """The distance from the epoch of what a text means, if it means a time."""
    time = instant(text) if type(text) is str else None
    return None if time is None else since_epoch(time)


def _is_null(x: Any) -> bool:
    return x is None


def _equal(value: Any) -> Answer:
    time = _of_text(value)
    if time is None:
        return lambda x: x == value
    return lambda x: x == value if type(x) not in TIMES else since_epoch(x) == time


def _one_of(values: tuple[Any, ...]) -> Answer:
    wanted = frozenset(values)
    times = frozenset(map(_of_text, values)) - {None}

    def found(x: Any) -> bool:
        kind = type(x)
        if kind in _HASHED:
            return x in wanted
        return kind in TIMES and since_epoch(x) in times

    return found


def _ordered(comparison: Comparison) -> Answer:
    holds, value = ORDERS[comparison.operator], comparison.value
    usual: frozenset[type] = frozenset({str}) if type(value) is str else NUMBERS
    time = _of_text(value)

    def unusual(x: Any) -> Any:
        if x is None:
            return False
        if time is not None and type(x) in TIMES:
            return holds(since_epoch(x), time)
        raise comparison.refusal(describe_type(x))

    by_operator: dict[str, Answer] = {
        ">": lambda x: x > value if type(x) in usual else unusual(x),
        ">=": lambda x: x >= value if type(x) in usual else unusual(x),
        "<": lambda x: x < value if type(x) in usual else unusual(x),
        "<=": lambda x: x <= value if type(x) in usual else unusual(x),
    }
    return by_operator[comparison.operator]


_Many = tuple[frozenset[type] | None, Callable[[list[Any]], list[bool]]]
"""Types of values that may be decided about together (None: all), and how."""


def _many(comparison: Comparison) -> _Many:
    value = comparison.value
    usual = (frozenset({str}) if type(value) is str else NUMBERS) | _OR_NONE
    untimed = _HASHED | _OR_NONE
    wanted = frozenset(value) if comparison.operator == "in" else frozenset()
    ways: dict[str, _Many] = {
        ">": (usual, lambda xs: [x is not None and x > value for x in xs]),
        ">=": (usual, lambda xs: [x is not None and x >= value for x in xs]),
        "<": (usual, lambda xs: [x is not None and x < value for x in xs]),
        "<=": (usual, lambda xs: [x is not None and x <= value for x in xs]),
        "==": (untimed, lambda xs: [x == value for x in xs]),
        "!=": (untimed, lambda xs: [x != value for x in xs]),
        "in": (untimed, lambda xs: [x in wanted for x in xs]),
        "is-null": (None, lambda xs: [x is None for x in xs]),
    }
    return ways[comparison.operator]
