"""Aggregations that give numbers: `count`, and `sum`, `min`, `max` and `average` of the values of a
key.

Sums are exact, in whatever order values come, but for floats: those of Decimals have all digits,
where Python rounds to 28, and those of ints any number of bits. Users see an int that no segment
holds as the Decimal that equals it. A mean of Decimals has as many digits as their sum, and at
least 28.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation, localcontext
from math import isnan
from operator import itemgetter
from typing import Any

import numpy as np

from onyx.errors import UserError
from onyx.flow.batch import Segment, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.values import python_values
from onyx.flow.groups.keys import EXPONENT_MAX
from onyx.flow.instants import looked_up
from onyx.keystate.coded import Groups, Values, numbers_of
from onyx.windows.aggregations.aggregation import Aggregation, Segments, States
from onyx.windows.aggregations.array_forms import (
    ArrayForm,
    AverageForm,
    CountForm,
    ExtremeForm,
    SumForm,
    added,
    extremes,
    sums_of,
)

_NUMBERS = frozenset({int, float})
_DIGITS_MAX = 1_000
_EXACT = Context(prec=_DIGITS_MAX, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation])
"""Holds all digits of sums of Decimals that are not `_is_far`."""
_MEAN_DIGITS = 28
_INT64_MIN, _INT64_MAX = -(2**63), 2**64 - 1
"""The ints that a segment may have."""


class OverKey(Aggregation):
    """An aggregation over the values of one key."""

    def __init__(self, where: str = "", key: str = "", initial: Any = None) -> None:
        super().__init__(where, key, initial)
        self._get = itemgetter(key)

    def extract(self, segments: Segments) -> Values:
        """The values of the key, if all can be computed with."""
        try:
            values = format_of(segments).choose(self._of_dicts, self._of_columns)(segments)
        except KeyError:
            raise UserError(
                f"{self._where}: a segment has no key {self._key!r}; drop such segments before, "
                "set the key in the task's function, or give the input a schema with required: "
                f"[{self._key}]"
            ) from None
        if isinstance(values, list) and not _NUMBERS.issuperset(map(type, values)):
            values = list(map(looked_up, values))  # in one zone Python compares what clocks show
            with localcontext(_EXACT):
                self._try(values)
        return values

    def _of_dicts(self, segments: list[Segment]) -> Values:
        return list(map(self._get, segments))

    def _of_columns(self, columns: Columns) -> Values:
        column = columns.column(self._key)
        numbers = numbers_of(column)
        return python_values(column) if numbers is None else numbers

    def _try(self, values: list[Any]) -> None:
        """Whether each can be computed with at all, that is with the first state."""
        for value in values:
            try:
                if type(value) is Decimal and _is_far(value):
                    raise TypeError("a Decimal is not finite, or beyond 10**400")
                self.apply(self.init(), self.create(self.init(), value))
            except (TypeError, InvalidOperation) as error:
                raise self.refuse([value], error) from error

    def refuse(self, extracted: Sequence[Any], error: Exception) -> UserError:
        """The error names the key and the types of its values, and shows a value that is alone."""
        kinds = sorted({type(each).__name__ for each in extracted})
        value = f", as {reprlib.repr(extracted[0])}" if len(extracted) == 1 else ""
        return UserError(
            f"{self._where}: cannot compute with the values of key {self._key!r}, which are of "
            f"type {', '.join(kinds)}{value}"
        )


class Sum(OverKey):
    """The values of a key added up."""

    def init(self) -> int:
        """Zero."""
        return 0

    def apply(self, state: Any, update: Any) -> Any:
        """Add the value."""
        return _plus(state, update)

    def fold(self, bucket: States, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        """Add the values of a batch in their order."""
        with localcontext(_EXACT):
            for key, each in zip(keys, extracted, strict=True):
                bucket[key] += each

    def fold_groups(self, bucket: States, groups: Groups, values: Values) -> None:
        """Add arrays as a whole, if they can do it exactly."""
        sums = _added([bucket[key] for key in groups.keys], groups, values)
        if sums is None:
            super().fold_groups(bucket, groups, values)
        else:
            bucket.update(zip(groups.keys, sums, strict=True))

    def array_form(self) -> ArrayForm:
        """A column of sums."""
        return SumForm()

    def merge(self, one: Any, other: Any) -> Any:
        """Add both sums."""
        return _plus(one, other)

    def view(self, state: Any) -> Any:
        """The sum, as a segment holds it."""
        return _shown(state)

    def dump(self, state: Any) -> Any:
        """The sum, as a segment holds it."""
        return _shown(state)

    def dump_all(self, states: list[Any]) -> list[Any]:
        """Dumps for many."""
        known = _NUMBERS.issuperset(map(type, states)) and min(states, default=0) >= _INT64_MIN
        return states if known and max(states, default=0) <= _INT64_MAX else [*map(_shown, states)]

    def load(self, data: Any) -> Any:
        """The sum that was shown so."""
        return _hidden(data)


class Extreme(OverKey):
    """The smallest or largest value of a key, or the initial value where that is smaller. Without
    an initial value they are numbers, and the state before the first one is None."""

    _choose: Callable[..., Any]
    _greatest: bool

    def init(self) -> Any:
        """The window's `init`."""
        return self._initial

    def create(self, state: Any, extracted: Any) -> Any:
        """The value. Whether it can be computed with shows beside a number if nothing else."""
        if self._initial is None:
            self._choose(0, extracted)
        return extracted

    def apply(self, state: Any, update: Any) -> Any:
        """The smaller or larger of state and value."""
        if state is None:  # with NaN, which nothing is smaller or larger than, none begins
            return None if isinstance(update, float) and isnan(update) else update
        return self._choose(state, update)

    def fold(self, bucket: States, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        """Compare the values of a batch in their order."""
        choose = self._choose if self._initial is not None else self.apply
        for key, each in zip(keys, extracted, strict=True):
            bucket[key] = choose(bucket[key], each)

    def fold_groups(self, bucket: States, groups: Groups, values: Values) -> None:
        """Compare the state of a group with the one value that matters."""
        if isinstance(values, np.ndarray):
            best = extremes(len(groups.keys), groups.codes, values, self._greatest)
            self.fold(bucket, groups.keys, best.tolist())
        else:
            super().fold_groups(bucket, groups, values)

    def array_form(self) -> ArrayForm:
        """A column of extremes."""
        return ExtremeForm(self._initial, self._greatest)

    def merge(self, one: Any, other: Any) -> Any:
        """The smaller or larger of both."""
        return one if other is None else self.apply(one, other)


class Max(Extreme):
    """The largest value of a key."""

    _choose = staticmethod(max)
    _greatest = True


class Min(Extreme):
    """The smallest value of a key."""

    _choose = staticmethod(min)
    _greatest = False


class Average(OverKey):
    """Number, sum and mean of the values of a key; the mean comes with the first value."""

    def init(self) -> tuple[int, Any]:
        """No values: number and sum are zero."""
        return (0, 0)

    def apply(self, state: tuple[int, Any], update: Any) -> tuple[int, Any]:
        """One more value, added to the sum."""
        return (state[0] + 1, _plus(state[1], update))

    def fold_groups(self, bucket: States, groups: Groups, values: Values) -> None:
        """Count and add arrays as a whole, if they can do it exactly."""
        states = [bucket[key] for key in groups.keys]
        sums = _added([total for _, total in states], groups, values)
        if sums is None:
            super().fold_groups(bucket, groups, values)
            return
        numbers = [number + many for (number, _), many in zip(states, groups.counts(), strict=True)]
        bucket.update(zip(groups.keys, zip(numbers, sums, strict=True), strict=True))

    def array_form(self) -> ArrayForm:
        """A column of numbers of values and one of sums."""
        return AverageForm()

    def finish(self, count: int, numbers: Sequence[Any]) -> tuple[int, Any]:
        """The count, and the sum of the sums."""
        return (count, sum(numbers))

    def merge(self, one: tuple[int, Any], other: tuple[int, Any]) -> tuple[int, Any]:
        """Numbers and sums added."""
        return (one[0] + other[0], _plus(one[1], other[1]))

    def view(self, state: tuple[int, Any]) -> dict[str, Any]:
        """A dict of `n`, `sum` and, if there are values, `average`."""
        number, total = state
        mean = {"average": _quotient(total, number)} if number else {}
        return {"n": number, "sum": _shown(total), **mean}

    def from_view(self, view: Mapping[str, Any]) -> tuple[int, Any]:
        """Number and sum; the average follows from them."""
        return (view["n"], view["sum"])

    def dump(self, state: tuple[int, Any]) -> list[Any]:
        """A list, which msgpack has."""
        return [state[0], _shown(state[1])]

    def load(self, data: Sequence[Any]) -> tuple[int, Any]:
        """The tuple of that list."""
        return (data[0], _hidden(data[1]))


def _added(states: Sequence[Any], groups: Groups, values: Values) -> list[Any] | None:
    """The sums of groups after the values of rows; None if arrays cannot do it exactly."""
    if not isinstance(values, np.ndarray):
        return None
    sums = sums_of(states, values)
    found = None if sums is None else added(sums, groups.codes, values)
    return None if found is None else found.tolist()


def _plus(one: Any, other: Any) -> Any:
    if type(one) is Decimal or type(other) is Decimal:
        return _EXACT.add(one, other)
    return one + other


def _quotient(total: Any, number: int) -> Any:
    if type(total) is not Decimal:
        return total / number
    digits = max(_MEAN_DIGITS, len(total.as_tuple().digits))
    return Context(prec=digits).divide(total, number)


def _shown(total: Any) -> Any:
    beyond = type(total) is int and not _INT64_MIN <= total <= _INT64_MAX
    return Decimal(total) if beyond else total


def _hidden(total: Any) -> Any:
    """The total of which this was shown."""
    if type(total) is Decimal and total.as_tuple().exponent == 0:
        whole = int(total)
        return total if _INT64_MIN <= whole <= _INT64_MAX else whole
    return total


def _is_far(value: Decimal) -> bool:
    """Whether the sum of such Decimals may have more digits than are kept."""
    if not value.is_finite():
        return True
    least = value.as_tuple().exponent
    assert isinstance(least, int), "it is finite"
    return least < -EXPONENT_MAX or value.adjusted() > EXPONENT_MAX


class Count(Aggregation):
    """How many segments."""

    def init(self) -> int:
        """Zero."""
        return 0

    def create(self, state: int, extracted: Any) -> None:
        """Every segment counts the same."""
        return

    def apply(self, state: int, update: Any) -> int:
        """One more."""
        return state + 1

    def extract(self, segments: Segments) -> Values:
        """Nothing that anybody looks at."""
        return format_of(segments).choose(_themselves, _unseen)(segments)

    def fold(self, bucket: States, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        """Count all segments of a batch at once."""
        self.add(bucket, Counter(keys))

    def fold_groups(self, bucket: States, groups: Groups, values: Values) -> None:
        """Count the rows of each group."""
        self.add(bucket, dict(zip(groups.keys, groups.counts(), strict=True)))

    def add(self, bucket: States, counts: Mapping[Any, int]) -> dict[Any, int]:
        """Apply so many segments of each group; gives their states."""
        states = {key: bucket[key] + many for key, many in counts.items()}
        bucket.update(states)
        return states

    def array_form(self) -> ArrayForm:
        """A column of counts."""
        return CountForm()

    def finish(self, count: int, numbers: Sequence[Any]) -> int:
        """The count."""
        return count

    def merge(self, one: int, other: int) -> int:
        """The sum of both counts."""
        return one + other


def _themselves(segments: list[Segment]) -> Values:
    return segments


def _unseen(columns: Columns) -> Values:
    return np.empty(len(columns), np.bool_)
