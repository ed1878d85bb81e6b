"""Comparisons of flow conditions over a column: the same answers as for its values one by one.

Python compares numbers exactly, whatever their types, and Arrow casts them to one type first, which
loses digits: 2**53 + 1 would equal 2.0**53. So the value of a comparison is moved into the type of
the column (`bounds`).

How a type of column is compared is decided once for each type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import describe_type
from onyx.flow.arrays import Mask
from onyx.flow.columns.bounds import Bound, bound_of
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns
from onyx.flow.comparisons import ORDERS, Comparison
from onyx.flow.segment_failure import Refusal

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
    """Why."""


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
        return _one_of([bound_of(each, kind) for each in value], kind)
    bound = bound_of(value, kind)
    if operator in ("==", "!="):
        return _compared("==", bound, kind) if bound is not None and bound.exact else _nowhere
    return None if bound is None else _ordered(operator, bound, kind)


def _nowhere(column: pa.Array) -> Mask:
    return np.zeros(len(column), dtype=np.bool_)


def _ordered(operator: str, bound: Bound, kind: pa.DataType) -> Holds:
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


def _one_of(bounds: list[Bound | None], kind: pa.DataType) -> Holds:
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
