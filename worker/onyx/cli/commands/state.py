"""`onyx state`: what a window or a function of a running job has gathered until now."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from onyx.cli.options import JobArgument, JsonOption, TenancyOption, ZooKeeperOption, settings
from onyx.cli.state_table import extent_table, json_line
from onyx.client.query import window_state
from onyx.client.window_view import EXTENTS_DEFAULT
from onyx.ids import JobId
from onyx.transport.state_queries import EXTENTS_MAX
from onyx.windows.firing import ALL

WindowArgument = Annotated[
    str, typer.Argument(help="Id of the window, or TASK.STATE for a state of a function.")
]
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


def state(
    job: JobArgument,
    window: WindowArgument,
    key: KeyOption = None,
    limit: LimitOption = EXTENTS_DEFAULT,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a window or a function of a running job has gathered until now.

    One line an extent: its group, bounds and state; a state of a function has no bounds. It runs
    where workers run: it dials them, with their certificates if they use TLS.
    """
    group = ALL if key is None else parse_key(key)
    view = window_state(settings(zookeeper, tenancy), JobId(job), window, group, limit)
    if as_json:
        for extent in view.extents:
            print(json_line(extent))
    elif view.extents:
        Console().print(extent_table(view))
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


def _of_group(key: str | None, group: Any) -> str:
    """For whom nothing was found: perhaps the key is of another type than was meant."""
    if key is None:
        return ""
    if isinstance(group, str):
        return f" of the text {json.dumps(group)}"
    kind = {int: "number", bool: "truth value", list: "list", dict: "object"}.get(type(group), "")
    return f" of the {kind or 'value'} {key}; the text is --key '{json.dumps(key)}'"
