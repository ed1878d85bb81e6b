"""Floats that JSON has no form for: NaN and the infinities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from onyx.base.on_demand import ModuleOnDemand
from onyx.codec.kinds import levels

pc = ModuleOnDemand("pyarrow.compute")

_TEXTS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def is_odd(column: pa.Array, values: list[Any]) -> bool:
    """Whether a float in it is not finite."""
    kind = column.type
    if kinds.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is False
    return kinds.is_nested(kind) and any_odd(values)


def any_odd(values: Sequence[Any]) -> bool:
    """Whether a float in them is not finite."""
    return any(
        not math.isfinite(each)
        for level in levels(values)
        if float in level.kinds
        for each in level.values
        if type(each) is float
    )


def with_texts(value: Any) -> Any:
    """The value with the names of such floats in their place."""
    if type(value) is float:
        return value if math.isfinite(value) else _TEXTS[str(value)]
    if isinstance(value, dict):
        return {key: with_texts(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_texts(each) for each in value]
    return value
