"""Cells of CSV as columns: whole columns at once where pyarrow converts as Python does.

Where pyarrow takes what Python refuses (`0x10`), or the reverse, cells are converted one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.columns.compute import pc
from onyx.flow.columns.values import MISMATCH, cast_values, to_array
from onyx.plugins.files.csv_records import CONVERSIONS

_TRUTHS = ["false", "0", "true", "1"]
WRONG = (ValueError, ArithmeticError, *MISMATCH)
OPTION_TYPES: Mapping[str, pa.DataType] = {
    "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string(),
}  # fmt: skip
"""What the option `types` names."""
_NUMBER = r"^([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)?$"
"""The form of a cell that pyarrow mostly takes as a number, as Python does."""
CELLS_MAX = 16
"""While misfits are looked for, so many cells are converted one by one at most."""


def converted_of(text: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """The cells as a column, null for those that do not fit, and which these are. Few are, so cells
    that look odd are tried one by one, and otherwise halves are."""
    with contextlib.suppress(*WRONG):
        return converted(text, kind, by_cell=False), []
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        usual = pc.match_substring_regex(text, _NUMBER).to_numpy(zero_copy_only=False)
        odd = np.flatnonzero(~usual)
        with contextlib.suppress(*WRONG):
            held = converted(text.filter(pa.array(usual)), kind, by_cell=False)
            apart, misfits = _by_halves(text.take(pa.array(odd)), kind)
            order = np.argsort(np.concatenate((np.flatnonzero(usual), odd)))
            array = pa.concat_arrays([held, apart]).take(pa.array(order))
            return array, odd[misfits].tolist()
    return _by_halves(text, kind)


def _by_halves(text: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    parts = [pa.array([], kind)]
    misfits: list[int] = []

    def convert(first: int, count: int) -> None:
        try:
            parts.append(converted(text.slice(first, count), kind, count <= CELLS_MAX))
        except WRONG:
            if count > 1:
                convert(first, count // 2)
                convert(first + count // 2, count - count // 2)
                return
            parts.append(pa.nulls(1, kind))
            misfits.append(first)

    if len(text):
        convert(0, len(text))
    return pa.concat_arrays(parts), misfits


def converted(text: pa.Array, kind: pa.DataType, by_cell: bool = True) -> pa.Array:
    """Raises one of `WRONG`: a cell does not fit, or can only be converted by itself."""
    if kinds.is_string(kind):
        return text
    empty = pc.equal(text, "")
    values = (
        pc.if_else(empty, pa.scalar(None, pa.string()), text) if pc.any(empty).as_py() else text
    )
    if kinds.is_boolean(kind):
        found = pc.index_in(pc.utf8_lower(values), pa.array(_TRUTHS))
        if found.null_count != values.null_count:
            raise ValueError("not a bool")
        return pc.greater(found, 1)
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        whole = kinds.is_integer(kind)
        if not _mentions(text, b"xX" if whole else b"("):
            with contextlib.suppress(pa.ArrowInvalid):
                return _numbers(values, kind)
        if not by_cell:
            raise ValueError("some cells are to be looked at one by one")
        cell = CONVERSIONS["int" if whole else "float"]
        assert cell is not None
        return to_array(list(map(cell, text.to_pylist())), kind)
    if kinds.is_decimal(kind):
        return pa.array([_decimal(each) for each in text.to_pylist()], kind)
    return cast_values(values, kind)


def _numbers(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises pa.ArrowInvalid: a cell is no number, or one that the type does not hold."""
    if not kinds.is_floating(kind):
        return values.cast(kind)
    found = values.cast(pa.float64())
    large = pc.and_(
        pc.is_inf(found), pc.invert(pc.match_substring(values, "inf", ignore_case=True))
    )
    if pc.any(large).as_py():
        raise pa.ArrowInvalid("a number is beyond what float64 holds")
    return cast_values(found, kind)


def _mentions(text: pa.Array, some: bytes) -> bool:
    data = text.buffers()[2]
    if data is None or not len(text):
        return False
    ends = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    held = data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    return any(byte in held for byte in some)


def cell_of(name: str, kind: pa.DataType) -> Callable[[str], Any]:
    """What makes of a field a value that the engine may look at.

    Raises:
        UserError: no field is of this type.
    """
    if kinds.is_string(kind):
        return str
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
        names = {"bool": kinds.is_boolean, "int": kinds.is_integer, "float": kinds.is_floating}
        cell = CONVERSIONS[next(each for each, is_kind in names.items() if is_kind(kind))]
        assert cell is not None
        return cell
    if kinds.is_decimal(kind):
        return _decimal
    if kinds.is_timestamp(kind) or kinds.is_date(kind):
        return lambda text: text or None
    raise UserError(
        f"the schema says {kind} for column {name!r}, which has no form in CSV: read it as string "
        "and convert it in a function"
    )


def _decimal(text: str) -> Decimal | None:
    return Decimal(text) if text else None
