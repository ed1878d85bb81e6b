"""Single values as event times.

A float is milliseconds too, not seconds: two units that differ only by type or size would be
mistaken for one another some day.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Sequence
from types import NoneType
from typing import Any

from onyx.flow.instants import milliseconds, since_epoch
from onyx.windows.watermarks import TIME_MS_MAX, TIME_MS_MIN


def time_of(value: Any) -> int | None:
    """The time that a value stands for, in milliseconds since 1970; None: none."""
    time_ms: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        time_ms = value
    elif isinstance(value, float) and math.isfinite(value):
        time_ms = math.floor(value)
    elif isinstance(value, datetime.date | str):
        with contextlib.suppress(ValueError):
            time_ms = milliseconds(value)
    if time_ms is None or not TIME_MS_MIN <= time_ms <= TIME_MS_MAX:
        return None
    return time_ms


def newest_alike(values: Sequence[Any]) -> Any:
    """The greatest of values that are all event times, and of one kind that compares as times do;
    None: they are to be looked at one by one."""
    kinds = set(map(type, values))
    if NoneType in kinds:
        values = [value for value in values if value is not None]
        kinds.discard(NoneType)
    if kinds == {int} or (kinds == {float} and all(map(math.isfinite, values))):
        least, greatest = min(values), max(values)
        return greatest if least >= TIME_MS_MIN and greatest <= TIME_MS_MAX else None
    if kinds == {datetime.datetime}:
        in_utc = all(value.tzinfo is datetime.UTC for value in values)
        return max(values, key=None if in_utc else since_epoch)
    return None
