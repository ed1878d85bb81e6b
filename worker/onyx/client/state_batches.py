"""Extents of a window as a record batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from onyx.windows.firing import Extent, Number

_TIME = pa.timestamp("ms", tz="UTC")
_NONE = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


def record_batch(
    extents: Sequence[Extent], in_time: bool, by_session_key: bool = False
) -> pa.RecordBatch:
    """A row for each extent: `key`, `from`, `to`, `sessionKey` where sessions have one, `state`.

    Keys and states have the type that holds all of them; where there is none, each is the text of
    its JSON. Bounds are times where the window's are; those of a global window are null.

    Args:
        in_time: bounds are milliseconds since the epoch.
        by_session_key: extents have session keys.
    """
    columns = {
        "key": _values([each.group for each in extents]),
        "from": _bounds([each.lower for each in extents], in_time),
        "to": _bounds([each.upper for each in extents], in_time),
    }
    if by_session_key:
        columns["sessionKey"] = _values([each.session_key for each in extents])
    columns["state"] = _values([each.state for each in extents])
    return pa.RecordBatch.from_pydict(columns)


def json_text(value: Any) -> str:
    """A value as JSON. Keys of dicts that are no text become their JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:
        return msgspec.json.encode(_with_text_keys(value), enc_hook=str).decode()


def shown(value: Any) -> str:
    """Text itself, and anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


def _values(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except _NONE:
        return pa.array([None if each is None else shown(each) for each in values], pa.string())


def _bounds(bounds: Sequence[Number], in_time: bool) -> pa.Array:
    finite = [each if math.isfinite(each) else None for each in bounds]
    if in_time:
        return pa.array([None if each is None else int(each) for each in finite], _TIME)
    whole = all(each is None or isinstance(each, int) for each in finite)
    return pa.array(finite, pa.int64() if whole else pa.float64())


def _with_text_keys(value: Any) -> Any:
    """The value with keys of dicts that JSON can have."""
    if isinstance(value, dict):
        return {shown(key): _with_text_keys(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_text_keys(each) for each in value]
    return value
