"""Folding arrays into states of groups, with exactly what Python's `+`, `min` and `max` make of the
values one by one: floats are added in the order of the rows, and ints of any size stay exact.

Rejected: `bincount` with weights and Arrow's `group_by`, which add floats in another order and
have no ints beyond 53 or 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onyx.flow.batch import Indices

Array = NDArray[Any]
"""An array of int64 or float64."""

_INT64_MAX = 2**63 - 1
_NUMBERS = frozenset({int, float})


def added(states: Array, codes: Indices, values: Array) -> Array | None:
    """The sums of groups after the values of some rows.

    Args:
        states: the sum of each group before.
        codes: for each row its group; every group has a row.

    Returns:
        None if arrays cannot do what Python does with these numbers.
    """
    whole = states.dtype == np.int64
    if whole and (
        values.dtype != np.int64 or _bound(states) + _bound(values) * len(values) > _INT64_MAX
    ):
        return None
    sums = states.copy()
    with np.errstate(all="ignore"):
        np.add.at(sums, codes, values)
    return sums


def both_added(one: Array, other: Array) -> Array | None:
    """The sums of pairs of sums; None: as for `added`."""
    if one.dtype != other.dtype:
        return None
    if one.dtype == np.int64 and _bound(one) + _bound(other) > _INT64_MAX:
        return None
    with np.errstate(all="ignore"):
        found: Array = one + other
    return found


def sums_of(states: Sequence[Any], values: Array) -> Array | None:
    """Sums as an array to which `added` adds such values; None if arrays cannot."""
    kinds = set(map(type, states))
    try:
        if values.dtype == np.int64 and kinds == {int}:
            return np.array(states, np.int64)
        if kinds == {float} or (values.dtype == np.float64 and kinds <= _NUMBERS):
            return np.array(states, np.float64)
    except OverflowError:
        pass
    return None


def _bound(values: Array) -> int:
    """No value is further from zero."""
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def extremes(many: int, codes: Indices, values: Array, greatest: bool) -> Array:
    """The first of the greatest, or least, values of each group; NaN only if it has nothing else.

    Args:
        many: groups; every one has a row.
    """
    firsts = np.empty(many, np.intp)
    at = np.arange(len(codes))
    firsts[codes[::-1]] = at[::-1]  # of one group the last assignment stays
    there = values == values
    if not there.all():
        at = at[there]
    its_codes, its_values = codes[at], values[at]
    found = values[firsts]
    (np.fmax if greatest else np.fmin).at(found, its_codes, its_values)
    equal = its_values == found[its_codes]
    firsts[its_codes[equal][::-1]] = at[equal][::-1]
    chosen: Array = values[firsts]
    return chosen
