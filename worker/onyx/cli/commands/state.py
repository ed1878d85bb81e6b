"""`onyx state`: what a window of a running job has gathered until now."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from onyx.cli.options import JobArgument, JsonOption, TenancyOption, ZooKeeperOption, settings
from onyx.client.query import window_state
from onyx.client.window_view import EXTENTS_DEFAULT, WindowView
from onyx.ids import JobId
from onyx.transport.state_queries import EXTENTS_MAX
from onyx.windows.firing import ALL, Extent, Number

WindowArgument = Annotated[str, typer.Argument(help="Id of the window.")]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        help='Only this group. 5, true, null, "text", [..] and {..} are read as JSON; anything '
        "else is text as it stands.",
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", help="Show the first so many extents.", min=1, max=EXTENTS_MAX)
]
STATE_CHARS_MAX = 1_000
"""Length of a state in the table; JSON has all of it."""


def state(
    job: JobArgument,
    window: WindowArgument,
    key: KeyOption = None,
    limit: LimitOption = EXTENTS_DEFAULT,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a window of a running job has gathered until now.

    One line an extent: its group, bounds and state. It runs where workers run: it dials them, with
    their certificates if they use TLS.
    """
    group = ALL if key is None else parse_key(key)
    view = window_state(settings(zookeeper, tenancy), JobId(job), window, group, limit)
    if as_json:
        for extent in view.extents:
            print(json_line(extent))
    elif view.extents:
        Console().print(_table(view))
    else:
        print(f"window {window} has no extents{_of_group(key, group)}")
    if view.more:
        note = f"these are the first {len(view.extents)} extents: give --key, or a larger --limit"
        print(note, file=sys.stderr)


def parse_key(text: str) -> Any:
    """The key of a group as it is given on the command line. A float is no key, so `1.5` is text,
    like everything that is not JSON.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float) else value


def json_line(extent: Extent) -> str:
    """An extent for programs; the bounds of a global window are null."""
    line = {
        "key": extent.group,
        "from": _finite(extent.lower),
        "to": _finite(extent.upper),
        "state": extent.state,
    }
    return _json(line)


def _of_group(key: str | None, group: Any) -> str:
    """For whom nothing was found: perhaps the key is of another type than was meant."""
    if key is None:
        return ""
    if isinstance(group, str):
        return f" of the text {json.dumps(group)}"
    kind = {int: "number", bool: "truth value", list: "list", dict: "object"}.get(type(group), "")
    return f" of the {kind or 'value'} {key}; the text is --key '{json.dumps(key)}'"


def _table(view: WindowView) -> Table:
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
