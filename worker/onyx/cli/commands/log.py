"""`onyx log`: the entries of the log, one a line."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from onyx.cli.command_line import Option
from onyx.cli.options import JsonOption, LogPlace
from onyx.client.connection import connect
from onyx.client.subscription import Subscription
from onyx.ids import Position
from onyx.log.interface import Origin
from onyx.replica.command import Entry

FromOption = Annotated[int, Meta(ge=0), Option("--from", "First position to show.")]
FollowOption = Annotated[bool, Option("--follow -f", "Go on with new entries.")]


def log(
    first: FromOption = 0,
    follow: FollowOption = False,
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Print the entries of the log, one a line."""
    with connect(place.to_read()) as client:
        if follow:
            printing = Subscription(
                client.log, lambda item: _print(item, as_json), Position(first - 1)
            )
            with closing(printing):
                printing.wait()
        for entry in client.entries(Position(first - 1)):
            _print(entry, as_json)


def _print(item: Entry | Origin, as_json: bool) -> None:
    if isinstance(item, Origin):
        line: dict[str, Any] = {"position": item.position, "origin": True}
    else:
        line = {
            "position": item.position,
            "fn": item.command.NAME,
            "args": msgspec.to_builtins(item.command),
            "writer": item.writer,
            "sequence": item.sequence,
            "parent": item.parent,
            "by": item.by,
            "at_ms": item.at_ms,
        }
    if as_json or isinstance(item, Origin):
        print(json.dumps(line, sort_keys=True), flush=True)
        return
    arguments = json.dumps(line["args"], sort_keys=True)
    by = f"  by {item.by}" if item.by else ""
    print(f"{item.position:>8}  {item.command.NAME:<22} {arguments}{by}", flush=True)
