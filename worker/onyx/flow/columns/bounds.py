"""Where the value of a comparison stands among the values of a type of column.

It is moved down to the nearest number that the type has. Between that number and the next one the
column has no values, so any order to the value is an order to that number. The same holds for
dates, which are the days of times.
"""

from __future__ import annotations

import decimal
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.comparisons import instant

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
