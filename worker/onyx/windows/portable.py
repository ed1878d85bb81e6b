"""What a window by Spark can take of segments: numbers that fit columns of 64 bits, and whole
coordinates where sessions are made of them.

Checked when a batch is prepared, where a segment that does not fit fails alone. On peers Python
computes with whatever can be added and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onyx.flow.segment import Refusal
from onyx.windows.aggregations.numbers import Keyed
from onyx.windows.compiled import CompiledWindow

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_NUMBERS = frozenset({int, float})


def check_portable(window: CompiledWindow, coordinates: Any, extracted: Any) -> None:
    """Raises Refusal: a segment has a coordinate or value that Spark cannot compute with
    exactly."""
    where = f"window {window.window.id} of task {window.window.task}, by Spark"
    if window.window.type == "session" and not _whole(coordinates):
        raise Refusal(
            f"{where}: a coordinate is a fraction, and sessions need whole ones; round it in the "
            "task's "
            "function, or use engine: peers for the window"
        )
    if isinstance(extracted, np.ndarray) or not isinstance(window.aggregation, Keyed):
        return
    if not _fit(extracted):
        raise Refusal(
            f"{where}: a value is neither an int of 64 bits nor a float; convert it in the task's "
            "function, or use engine: peers for the window"
        )


def _whole(coordinates: Any) -> bool:
    if isinstance(coordinates, np.ndarray):
        return coordinates.dtype.kind == "i" or bool((coordinates == np.floor(coordinates)).all())
    return all(coordinate == coordinate // 1 for coordinate in coordinates)


def _fit(values: Sequence[Any]) -> bool:
    if not _NUMBERS.issuperset(map(type, values)):
        return False
    ints = [value for value in values if type(value) is int]
    return not ints or (min(ints) >= _INT_MIN and max(ints) <= _INT_MAX)
