"""The states of many groups in arrays: what `Aggregation` does with one state, for a state a group.

Each form gets and gives columns of states, and does exactly what Python's `+`, `min` and `max` make
of the values one by one (floats are added in the order of the rows, ints of any size stay exact),
or says that arrays cannot: then whoever keeps the states keeps Python's.

Rejected: `bincount` with weights and Arrow's `group_by`, which add floats in another order and
have no ints beyond 53 or 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import truediv
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onyx.flow.batch import Indices
from onyx.keystate.coded import Values

Column = NDArray[Any]
States = tuple[Column, ...]
"""Columns of which the state of a group is a row: ints or floats of 64 bits."""


_EXACT_MAX = 2**53
"""Up to this a float holds every int."""
_TYPES = {int: np.int64, float: np.float64}
Array = NDArray[Any]
"""An array of int64 or float64."""
_INT64_MAX = 2**63 - 1
_NUMBERS = frozenset({int, float})


class ArrayForm(Protocol):
    """The states of an aggregation in arrays."""

    def first(self, many: int, values: Values) -> States | None:
        """So many first states, of the types that states have after values like these; None: arrays
        do not hold them."""
        ...

    def fold(self, states: States, codes: Indices, values: Values) -> States | None:
        """The states of groups after the values of some rows.

        Args:
            codes: for each row its group; every group has a row.

        Returns:
            None if arrays cannot do what Python does with these values.
        """
        ...

    def merge(self, one: States, other: States) -> States | None:
        """The states of groups made of two each; None: as for `fold`."""
        ...

    def is_exact(self, values: Values) -> bool:
        """Whether states are the same in whatever order such values come and states merge."""
        ...

    def finish(self, counts: Column | None, numbers: Column | None = None) -> States | None:
        """The states of new groups, as `Aggregation.finish` makes one; None: as for `fold`.

        Args:
            counts: segments a group, if they were asked for.
            numbers: what an engine of columns has merged a group, if it has.
        """
        ...

    def to_python(self, states: States) -> list[Any]:
        """The states as the aggregation has them."""
        ...

    def from_python(self, states: Sequence[Any]) -> States | None:
        """What `to_python` gave, as columns; None: arrays do not hold them."""
        ...

    def to_arrow(self, states: States) -> pa.Array:
        """What users see of the states (`Aggregation.view`), as a column."""
        ...


class OneColumn:
    """States that are a number each."""

    def first(self, many: int, values: Values) -> States | None:
        """The states of new groups."""
        raise NotImplementedError

    def fold(self, states: States, codes: Indices, values: Values) -> States | None:
        """The states of groups after the values of some rows."""
        raise NotImplementedError

    def is_exact(self, values: Values) -> bool:
        """Ints are."""
        return _are_ints(values)

    def finish(self, counts: Column | None, numbers: Column | None = None) -> States | None:
        """The states of groups that have got a number each."""
        if numbers is None:
            return None
        firsts = self.first(len(numbers), numbers)
        return None if firsts is None else self.fold(firsts, np.arange(len(numbers)), numbers)

    def to_python(self, states: States) -> list[Any]:
        """The numbers."""
        found: list[Any] = states[0].tolist()
        return found

    def from_python(self, states: Sequence[Any]) -> States | None:
        """A column of numbers of one type."""
        return _column(states)

    def to_arrow(self, states: States) -> pa.Array:
        """The numbers."""
        return pa.array(states[0])


class CountForm(OneColumn):
    """Counts of segments."""

    def first(self, many: int, values: Values) -> States:
        """Zeros."""
        return (np.zeros(many, np.int64),)

    def fold(self, states: States, codes: Indices, values: Values) -> States:
        """Count the rows of each group."""
        return (states[0] + np.bincount(codes, minlength=len(states[0])),)

    def is_exact(self, values: Values) -> bool:
        """All counts are."""
        return True

    def finish(self, counts: Column | None, numbers: Column | None = None) -> States | None:
        """The counts."""
        return None if counts is None else (counts,)

    def merge(self, one: States, other: States) -> States:
        """Add both counts."""
        return (one[0] + other[0],)


class SumForm(OneColumn):
    """Sums."""

    def first(self, many: int, values: Values) -> States | None:
        """Zeros of the type of the values."""
        numbers = _numbers(values)
        return None if numbers is None else (np.zeros(many, numbers.dtype),)

    def fold(self, states: States, codes: Indices, values: Values) -> States | None:
        """Add the values in the order of the rows."""
        numbers = _numbers(values)
        sums = None if numbers is None else added(states[0], codes, numbers)
        return None if sums is None else (sums,)

    def merge(self, one: States, other: States) -> States | None:
        """Add both sums."""
        sums = both_added(one[0], other[0])
        return None if sums is None else (sums,)


class ExtremeForm(OneColumn):
    """Smallest or largest values."""

    def __init__(self, initial: Any, greatest: bool) -> None:
        self._initial = initial
        self._greatest = greatest

    def first(self, many: int, values: Values) -> States | None:
        """The initial value, if it has the type of the values. Without one, what every number of
        the type replaces, for every group has a row."""
        numbers = _numbers(values)
        if numbers is not None and self._initial is None:
            return (np.full(many, self._last(numbers.dtype), numbers.dtype),)
        initial = _column([self._initial])
        if numbers is None or initial is None or initial[0].dtype != numbers.dtype:
            return None
        return (np.repeat(initial[0], many),)

    def _last(self, kind: np.dtype[Any]) -> Any:
        """The number of a type that is chosen before no other one."""
        if kind.kind == "f":
            return -np.inf if self._greatest else np.inf
        return np.iinfo(kind).min if self._greatest else np.iinfo(kind).max

    def fold(self, states: States, codes: Indices, values: Values) -> States | None:
        """Compare the state of a group with the one value that matters."""
        numbers = _numbers(values)
        if numbers is None or numbers.dtype != states[0].dtype:
            return None
        best = extremes(len(states[0]), codes, numbers, self._greatest)
        if self._initial is None and np.any(np.isnan(best) & (states[0] == self._last(best.dtype))):
            return None  # a group that has NaN alone has no state
        return self._better(states[0], best)

    def merge(self, one: States, other: States) -> States | None:
        """The smaller or larger of both."""
        return self._better(one[0], other[0]) if one[0].dtype == other[0].dtype else None

    def _better(self, one: Column, other: Column) -> States:
        """The better one of each pair; of equal ones the first, as Python's `min` and `max`."""
        return (np.where(other > one if self._greatest else other < one, other, one),)


class AverageForm:
    """Numbers of values, and their sums, of which averages are made."""

    def first(self, many: int, values: Values) -> States | None:
        """No values."""
        sums = _SUM.first(many, values)
        return None if sums is None else (np.zeros(many, np.int64), *sums)

    def fold(self, states: States, codes: Indices, values: Values) -> States | None:
        """Count the rows, and add their values."""
        sums = _SUM.fold(states[1:], codes, values)
        return None if sums is None else (*_COUNT.fold(states[:1], codes, values), *sums)

    def is_exact(self, values: Values) -> bool:
        """Ints are."""
        return _are_ints(values)

    def finish(self, counts: Column | None, numbers: Column | None = None) -> States | None:
        """The counts, and sums that are the numbers."""
        sums = _SUM.finish(None, numbers)
        return None if sums is None or counts is None else (counts, *sums)

    def merge(self, one: States, other: States) -> States | None:
        """Numbers and sums added."""
        sums = _SUM.merge(one[1:], other[1:])
        return None if sums is None else (one[0] + other[0], *sums)

    def to_python(self, states: States) -> list[Any]:
        """Pairs."""
        return list(zip(states[0].tolist(), states[1].tolist(), strict=True))

    def from_python(self, states: Sequence[Any]) -> States | None:
        """Two columns."""
        numbers, sums = (_column([each[index] for each in states]) for index in (0, 1))
        return None if numbers is None or sums is None else (*numbers, *sums)

    def to_arrow(self, states: States) -> pa.Array:
        """Structs of both and of the mean, which is null where there are no values."""
        many, sums = states
        empty = many == 0
        means = _quotients(sums, np.where(empty, 1, many))
        columns = [pa.array(many), pa.array(sums), pa.array(means, mask=empty)]
        return pa.StructArray.from_arrays(columns, ["n", "sum", "average"])


_COUNT, _SUM = CountForm(), SumForm()


def _quotients(sums: Column, many: Column) -> Column:
    """What Python's division gives, which looks at all digits of an int."""
    if sums.dtype.kind == "i" and len(sums) and np.abs(sums).max() > _EXACT_MAX:
        found = map(truediv, sums.tolist(), many.tolist())
        return np.fromiter(found, np.float64, len(sums))
    return sums / many


def _numbers(values: Values) -> Column | None:
    """Values as an array of what Python's int or float holds; None if they are of other types, or
    of both."""
    if isinstance(values, np.ndarray):
        return values
    found = _column(values)
    return None if found is None else found[0]


def _are_ints(values: Values) -> bool:
    numbers = _numbers(values)
    return numbers is not None and numbers.dtype == np.int64


def _column(values: Sequence[Any]) -> States | None:
    types = set(map(type, values))
    dtype = _TYPES.get(types.pop()) if len(types) == 1 else None
    if dtype is None:
        return None
    try:
        return (np.array(values, dtype),)
    except OverflowError:
        return None


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
