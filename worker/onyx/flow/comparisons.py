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

**Over a column** the answers are the same as for its values one by one. Python compares numbers
exactly, whatever their types, and Arrow casts them to one type first, which loses digits: 2**53 + 1
would equal 2.0**53. So the value of a comparison is moved into the type of the column (`bound_of`):
down to the nearest number that the type has. Between that number and the next one the column has no
values, so any order to the value is an order to that number. The same holds for dates, which are
the days of times. How a type of column is compared is decided once for each type.
"""

from __future__ import annotations

import decimal
import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from types import NoneType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import describe_type
from onyx.flow.arrays import Mask
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns
from onyx.flow.instants import since_epoch
from onyx.flow.segment import Refusal

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


# --- a column -----------------------------------------------------------------------------------

Holds = Callable[[pa.Array], Mask]

_COMPUTE: Mapping[str, str] = {
    ">": "greater", ">=": "greater_equal", "<": "less", "<=": "less_equal", "==": "equal",
}  # fmt: skip
"""Names of Arrow's functions."""

_NUMPY: Mapping[str, Callable[[Any, Any], Any]] = {**ORDERS, "==": np.equal}


class Answers(NamedTuple):
    """What a comparison says of each row."""

    holds: Mask
    refused: Mask | None = None
    """Rows whose values cannot be compared; None: no row."""
    error: Refusal | None = None
    """Why they cannot."""


class ColumnComparison:
    """One comparison, as it is asked about batch after batch."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._by_type: dict[pa.DataType, Holds | None] = {}

    def answers(self, columns: Columns) -> Answers:
        """For each row whether the comparison holds."""
        comparison, count = self._comparison, len(columns)
        inverted = comparison.operator == "!="
        batch = columns.record_batch
        index = batch.schema.get_field_index(comparison.key)
        if index < 0:
            every = inverted or comparison.operator == "is-null"
            return Answers(np.full(count, every, dtype=np.bool_))
        column = batch.column(index)
        if comparison.operator == "is-null":
            return Answers(mask_of(column.is_null()))
        holds = self._holds(column.type)
        if holds is not None:
            return Answers(~holds(column) if inverted else holds(column))
        refused = mask_of(column.is_valid())
        nothing = np.zeros(count, dtype=np.bool_)
        if not refused.any():
            return Answers(nothing)
        value = column[int(refused.argmax())].as_py()
        return Answers(nothing, refused, comparison.refusal(describe_type(value)))

    def _holds(self, kind: pa.DataType) -> Holds | None:
        try:
            return self._by_type[kind]
        except KeyError:
            found = self._by_type[kind] = _holds(self._comparison, kind)
            return found


def mask_of(array: pa.Array) -> Mask:
    """A boolean column as a mask; null is false."""
    if array.null_count:
        array = array.fill_null(False)
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def _holds(comparison: Comparison, kind: pa.DataType) -> Holds | None:
    """How a column of this type is compared; None: its values have no order to the value."""
    operator, value = comparison.operator, comparison.value
    if kinds.is_null(kind):
        return _nowhere
    if operator == "in":
        return _rows_one_of([bound_of(each, kind) for each in value], kind)
    bound = bound_of(value, kind)
    if operator in ("==", "!="):
        return _compared("==", bound, kind) if bound is not None and bound.exact else _nowhere
    return None if bound is None else _rows_ordered(operator, bound, kind)


def _nowhere(column: pa.Array) -> Mask:
    return np.zeros(len(column), dtype=np.bool_)


def _rows_ordered(operator: str, bound: Bound, kind: pa.DataType) -> Holds:
    if bound.below is None:
        return _nowhere if operator in ("<", "<=") else _wherever_valid
    if not bound.exact:
        operator = {"<": "<=", ">=": ">"}.get(operator, operator)
    return _compared(operator, bound, kind)


def _wherever_valid(column: pa.Array) -> Mask:
    return mask_of(column.is_valid())


def _compared(operator: str, bound: Bound, kind: pa.DataType) -> Holds:
    kind = _compared_as(kind)
    scalar, fast = _scalar(bound.below, kind), _NUMPY[operator]
    compute = getattr(pc, _COMPUTE[operator])
    plain = kinds.is_integer(kind) or kinds.is_float64(kind)

    def holds(column: pa.Array) -> Mask:
        if not column.type.equals(kind):
            column = column.cast(kind)
        if plain and not column.null_count:
            mask: Mask = fast(column.to_numpy(), bound.below)
            return mask
        return mask_of(compute(column, scalar))

    return holds


def _rows_one_of(bounds: list[Bound | None], kind: pa.DataType) -> Holds:
    kind = _compared_as(kind)
    values = [bound.below for bound in bounds if bound is not None and bound.exact]
    if not values:
        return _nowhere
    if 0.0 in values and kinds.is_float64(kind):
        values += [0.0, -0.0]
    wanted = pa.array([_scalar(each, kind).as_py() for each in values], kind)

    def found(column: pa.Array) -> Mask:
        if not column.type.equals(kind):
            column = column.cast(kind)
        return mask_of(pc.is_in(column, value_set=wanted))

    return found


def _compared_as(kind: pa.DataType) -> pa.DataType:
    if kinds.is_boolean(kind):
        return pa.int8()
    if kinds.is_decimal(kind) and kind.scale < 0:
        # Arrow does not compare those.
        return pa.decimal256(min(kind.precision - kind.scale, 76), 0)
    return pa.float64() if kinds.is_float32(kind) else kind


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A value of `Bound.below` as one of the column's type."""
    if kinds.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    return pa.scalar(value, kind)


# --- the value in the type of a column ----------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_EXACT = decimal.Context(prec=100)


class Bound(NamedTuple):
    """Where a value stands among those of a type."""

    below: Any
    """The largest that is not above it; None: all are above."""
    exact: bool
    """Whether that is the value itself."""


def bound_of(value: Any, kind: pa.DataType) -> Bound | None:
    """Where the value of a comparison stands in a type; None: they cannot be compared."""
    if type(value) is str:
        if kinds.is_string(kind):
            return Bound(value, True)
        time = instant(value)
        if time is not None and kinds.is_timestamp(kind):
            return Bound(time, True)
        if time is not None and kinds.is_date32(kind):
            days = (time - _EPOCH) // timedelta(days=1)
            return Bound(days, time == _EPOCH + timedelta(days=days))
        return None
    if kinds.is_boolean(kind):
        return _integer(value, -128, 127)
    if kinds.is_integer(kind):
        bits = kind.bit_width
        if kinds.is_signed_integer(kind):
            return _integer(value, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return _integer(value, 0, 2**bits - 1)
    if kinds.is_floating(kind):
        below = float(value)
        below = below if below <= value else math.nextafter(below, -math.inf)
        return Bound(below, below == value)
    return _decimal(value, kind) if kinds.is_decimal(kind) else None


def _integer(value: float, least: int, most: int) -> Bound:
    below = math.floor(value)
    if below < least:
        return Bound(None, False)
    return Bound(min(below, most), below == value and below <= most)


def _decimal(value: float, kind: pa.DataType) -> Bound:
    unit = Fraction(10) ** -kind.scale
    most = 10**kind.precision - 1
    below = _integer_of(Fraction(value) / unit, most)
    if below.below is None:
        return below
    return Bound(_EXACT.scaleb(Decimal(below.below), -kind.scale), below.exact)


def _integer_of(units: Fraction, most: int) -> Bound:
    below = math.floor(units)
    if below < -most:
        return Bound(None, False)
    return Bound(min(below, most), below == units and below <= most)
