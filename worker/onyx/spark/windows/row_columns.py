"""Keys and values of segments as the columns of a part."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onyx.codec.values import encode_values
from onyx.flow.groups.keys import key_bytes
from onyx.keystate.coded import Groups, Keyed, Values, rows
from onyx.keystate.groups import group_value
from onyx.spark.windows.plan import FLOAT, INT, KEY_INT, KEY_OTHER, KEY_TEXT, KEY_VALUE

INT64 = range(-(2**63), 2**63)
"""The ints that a column may have."""
"""Ints that a column may have."""


def plain_keys(column: pa.Array | None) -> dict[str, pa.Array]:
    """The key column of ints or text, without a step a key; none of others."""
    if column is None:
        return {}
    if not pa.types.is_integer(column.type):
        return {KEY_TEXT: column.cast(pa.string())}
    with contextlib.suppress(pa.ArrowInvalid):  # beyond 64 bits with a sign
        return {KEY_INT: column.cast(pa.int64())}
    return {}


def key_columns(keys: Sequence[Any]) -> dict[str, pa.Array]:
    """Key columns; those that are not needed are left out."""
    kinds = set(map(type, keys))
    if kinds == {str}:
        return {KEY_TEXT: pa.array(keys, pa.string())}
    ints = [type(key) is int and key in INT64 for key in keys]
    texts = [type(key) is str for key in keys]
    found: dict[str, pa.Array] = {}
    if any(ints):
        found[KEY_INT] = _some(keys, ints, pa.int64(), lambda key: key)
    if any(texts):
        found[KEY_TEXT] = _some(keys, texts, pa.string(), lambda key: key)
    pairs = zip(keys, ints, texts, strict=True)
    others = [not (key is None or is_int or is_text) for key, is_int, is_text in pairs]
    if any(others):
        found[KEY_OTHER] = _some(keys, others, pa.binary(), lambda key: key_bytes(group_value(key)))
        found[KEY_VALUE] = _some(
            keys, others, pa.binary(), lambda key: encode_values([group_value(key)])
        )
    return found


def _some(
    keys: Sequence[Any], mask: list[bool], kind: pa.DataType, value: Callable[[Any], Any]
) -> pa.Array:
    found = [value(key) if is_one else None for key, is_one in zip(keys, mask, strict=True)]
    return pa.array(found, kind)


def numbers(values: Values, extreme: bool) -> dict[str, Any]:
    """Ints and floats apart. Peers never take NaN for the smallest or largest value."""
    if isinstance(values, np.ndarray):
        ints = values.dtype.kind == "i"
        found = {INT if ints else FLOAT: pa.array(values)}
    else:
        kinds = set(map(type, values))
        if len(kinds) == 1:
            found = {INT: pa.array(values, pa.int64())} if int in kinds else {
                FLOAT: pa.array(values, pa.float64())
            }  # fmt: skip
        else:
            int_values = [value if type(value) is int else None for value in values]
            floats = [None if type(value) is int else value for value in values]
            found = {INT: pa.array(int_values, pa.int64()), FLOAT: pa.array(floats, pa.float64())}
    if extreme and FLOAT in found:
        column = found[FLOAT]
        found[FLOAT] = pc.if_else(pc.is_nan(column), None, column)
    return found


def session_keys(keys: Keyed) -> pa.Array:
    """The keys that keep the sessions of a group apart."""
    different = keys.keys if isinstance(keys, Groups) else keys
    column = pa.array([key_bytes(group_value(key)) for key in different], pa.binary())
    return column.take(pa.array(keys.codes)) if isinstance(keys, Groups) else column


def items(values: Values) -> pa.Array:
    """Values that are collected as they are."""
    return pa.array([encode_values([each]) for each in rows(values)], pa.binary())
