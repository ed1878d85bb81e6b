"""Folding arrays into states of groups, with exactly what Python's `+`, `min` and `max` make of the
values one by one: floats are added in the order of the rows, and ints of any size stay exact.

Rejected: `bincount` with weights and Arrow's `group_by`, which add floats in another order and
have no ints beyond 53 or 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onyx.flow.batch import Indices
from onyx.windows.coded import Array

_INT64_MAX = 2**63 - 1
_NUMBERS = frozenset({int, float})


def added(states: Sequence[Any], codes: Indices, values: Array) -> list[Any] | None:
    """The sums of groups after the values of some rows.

    Args:
        states: the sum of each group before.
        codes: for each row its group; every group has a row.

    Returns:
        None if arrays cannot do what Python does with these numbers.
    """
    kinds = set(map(type, states))
    try:
        if values.dtype == np.int64 and kinds == {int}:
            sums: Array = np.array(states, np.int64)
            if _bound(sums) + _bound(values) * len(values) > _INT64_MAX:
                return None
        elif kinds == {float} or (values.dtype == np.float64 and kinds <= _NUMBERS):
            sums, values = np.array(states, np.float64), values.astype(np.float64, copy=False)
        else:
            return None
    except OverflowError:
        return None
    with np.errstate(all="ignore"):
        np.add.at(sums, codes, values)
    found: list[Any] = sums.tolist()
    return found


def _bound(values: Array) -> int:
    """No value is further from zero."""
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def extremes(many: int, codes: Indices, values: Array, greatest: bool) -> list[Any]:
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
    chosen: list[Any] = values[firsts].tolist()
    return chosen
