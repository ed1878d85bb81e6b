"""`onyx replica`: the value that the log folds into."""

from __future__ import annotations

import json
from typing import Annotated

from msgspec import Meta

from onyx.cli.command_line import Option
from onyx.cli.options import JsonOption, LogPlace
from onyx.client.connection import connect
from onyx.errors import UserError
from onyx.ids import Position
from onyx.replica import canonical

AtOption = Annotated[int | None, Meta(ge=0), Option("--at", "As of this position.")]


def replica(
    at: AtOption = None,
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Print the replica: what the log folds into."""
    with connect(place.to_read()) as client:
        found = client.replica(None if at is None else Position(at))
    if at is not None and found.version != at:
        where = "ends before it" if found.version < at else "has been collected beyond it"
        raise UserError(f"there is no position {at}: the log {where}, at {found.version}")
    plain = {key: value for key, value in canonical.to_plain(found).items() if value or as_json}
    plain["digest"] = canonical.digest(found)
    print(json.dumps(plain, indent=None if as_json else 2, sort_keys=True))
