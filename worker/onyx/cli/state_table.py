"""Extents of a window as a table, or a line of JSON each."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.table import Column, Table
from rich.text import Text

from onyx.client.window_view import WindowView
from onyx.windows.firing import Extent, Number

STATE_CHARS_MAX = 1_000
"""Length of a state in the table; JSON has all of it."""


def json_line(extent: Extent) -> str:
    """An extent for programs; the bounds of a global window are null."""
    line = {
        "key": extent.group,
        "from": _finite(extent.lower),
        "to": _finite(extent.upper),
        "state": extent.state,
    }
    return _json(line)


def extent_table(view: WindowView) -> Table:
    """A row for each extent."""
    key, state = (Column(name, overflow="fold") for name in ("key", "state"))
    table = Table(key, Column("from", no_wrap=True), Column("to", no_wrap=True), state)
    for extent in view.extents:
        shown = _text(extent.state)
        if len(shown) > STATE_CHARS_MAX:
            shown = f"{shown[:STATE_CHARS_MAX]}… ({len(shown)} characters)"
        lower, upper = _bound(extent.lower, view), _bound(extent.upper, view)
        # As Text, for `[a]` in a str would be taken for markup.
        table.add_row(*map(Text, (_text(extent.group), lower, upper, shown)))
    return table


def _bound(bound: Number, view: WindowView) -> str:
    if not math.isfinite(bound):
        return ""
    if not view.in_time:
        return str(bound)
    try:
        moment = datetime.fromtimestamp(bound / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(bound)
    return moment.isoformat(timespec="milliseconds" if bound % 1_000 else "seconds")


def _finite(bound: Number) -> Number | None:
    return bound if math.isfinite(bound) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:
        return msgspec.json.encode(_with_text_keys(value)).decode()


def _with_text_keys(value: Any) -> Any:
    """The value with keys of dicts that JSON can have."""
    if isinstance(value, dict):
        return {_text(key): _with_text_keys(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_text_keys(each) for each in value]
    return value
