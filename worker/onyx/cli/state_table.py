"""Extents of a window as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.table import Column, Table
from rich.text import Text

from onyx.client.state_batches import shown
from onyx.client.states.state import State
from onyx.client.window_view import WindowView
from onyx.keystate.extents import Number

STATE_CHARS_MAX = 1_000
"""Length of a state in the table; JSON has all of it."""


def extent_table(view: WindowView) -> Table:
    """A row for each extent."""
    key, state = (Column(name, overflow="fold") for name in ("key", "state"))
    bounds = [Column(name, no_wrap=True) for name in ("from", "to")]
    of_session = [Column("session key", overflow="fold")] if view.by_session_key else []
    table = Table(key, *bounds, *of_session, state)
    for extent in view.extents:
        cells = [shown(extent.group), _bound(extent.lower, view), _bound(extent.upper, view)]
        if view.by_session_key:
            cells.append(shown(extent.session_key))
        # As Text, for `[a]` in a str would be taken for markup.
        table.add_row(*(Text(_printable(each)) for each in (*cells, _cut(shown(extent.state)))))
    return table


def names_table(states: Sequence[State]) -> Table:
    """A row for each state that a job keeps."""
    table = Table("state", "task", "kind", "grouped")
    for each in states:
        table.add_row(each.name, each.task, each.kind, "yes" if each.grouped else "no")
    return table


def _cut(state: str) -> str:
    if len(state) <= STATE_CHARS_MAX:
        return state
    return f"{state[:STATE_CHARS_MAX]}… ({len(state)} characters)"


def _printable(text: str) -> str:
    """Without what a terminal would obey: whoever sends segments does not command it."""
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)


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
