"""The times of versions as arrays that have an order, exactly as the values have it.

Versions lie in the type that their column has, and a time that is asked for is moved down to the
nearest one of that type (`flow.comparisons`): between the two there is no version. So 11.25
finds the version of 11, and 2**53 + 1 is not the float 2.0**53.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from onyx.flow.arrays import Mask
from onyx.flow.columns.compute import pc
from onyx.flow.columns.values import python_values
from onyx.flow.comparisons import bound_of
from onyx.joins.keys import plain

_BEYOND = 10**80
Moments = NDArray[Any]
"""int64, uint64, float64, or Decimals: values of one of these have an order."""


class Axis:
    """The moments of a column of times, and where others are among them."""

    def __init__(self, times: pa.Array) -> None:
        """Raises UserError: values of this type are no keys, so no times."""
        self._kind = times.type
        self.moments: tuple[Moments, Mask] = _moments(times)
        """The moment of each row; and which rows have one, which null and NaN are not."""

    def below(self, times: pa.Array) -> tuple[Moments, Mask]:
        """For each time the last moment that versions could have and that is not later; and which
        rows have one."""
        if _form(times.type) == _form(self._kind) or not _is_number(times.type):
            return _moments(times)
        if kinds.is_floating(times.type):
            times = _without_nan(times)
        encoded = times.dictionary_encode()
        values = map(_finite, python_values(encoded.dictionary))
        bounds = [bound_of(each, self._kind) for each in values]
        found = [None if bound is None else bound.below for bound in bounds]
        known = pa.array([each is not None for each in found], pa.bool_())
        there = known.take(encoded.indices).fill_null(False).to_numpy(zero_copy_only=False)
        moments = np.array([0 if each is None else each for each in found], _form(self._kind))
        if not len(moments):
            return np.zeros(len(times), _form(self._kind)), there
        return moments[encoded.indices.fill_null(0).to_numpy()], there


def _form(kind: pa.DataType) -> str:
    """The type of array that moments of this type have."""
    if kinds.is_floating(kind):
        return "f8"
    if kinds.is_decimal(kind):
        return "O"
    return "u8" if kinds.is_uint64(kind) else "i8"


def _is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))


def _moments(times: pa.Array) -> tuple[Moments, Mask]:
    form = _form(times.type)
    if form == "O":
        values = python_values(times)
        there = np.array([each is not None for each in values], np.bool_)
        moments = np.array([0 if each is None else each for each in values], object)
        return moments, there
    if form == "f8":
        times = _without_nan(times)
    elif form == "i8":
        times = plain(times)
    there = times.is_valid().to_numpy(zero_copy_only=False)
    if kinds.is_null(times.type):
        return np.zeros(len(times), form), there
    return times.fill_null(0).to_numpy().astype(form, copy=False), there


def _without_nan(times: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(times), None, times).cast(pa.float64())


def _finite(value: Any) -> Any:
    """A number that is beyond all others where the value is infinite."""
    return int(math.copysign(1, value)) * _BEYOND if abs(value) == math.inf else value
