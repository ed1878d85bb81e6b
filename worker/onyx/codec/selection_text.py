"""Questions about a window as text: options of a command line, or parameters of a URL."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from onyx.codec.extents import decode_place
from onyx.errors import UserError
from onyx.keystate.extents import ALL, Number
from onyx.keystate.inside import Inside
from onyx.keystate.selection import Selection


def parse_key(text: str) -> Any:
    """The key of a group as text. A float is no key, so `1.5` is text, like everything that is not
    JSON.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float) else value


def parse_bound(text: str) -> Number:
    """A coordinate of a window: a number as it stands, or a moment in ISO 8601 (UTC unless it says
    otherwise) as milliseconds since the epoch.

    Raises:
        UserError: it is neither.
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return _moment(text)
    if math.isnan(number):
        raise UserError("a window has no bound nan")
    return number


def selection(
    key: str | None = None,
    prefix: str | None = None,
    first_key: str | None = None,
    before_key: str | None = None,
    time_from: str | None = None,
    time_to: str | None = None,
    after: str | None = None,
    path: str | None = None,
    first_item: str | None = None,
    before_item: str | None = None,
    items: str | None = None,
) -> Selection:
    """What is asked for; None: not given.

    Raises:
        UserError: something cannot be read, or makes no sense.
    """
    found = Selection(
        ALL if key is None else parse_key(key),
        None if prefix is None else parse_key(prefix),
        None if first_key is None else parse_key(first_key),
        None if before_key is None else parse_key(before_key),
        None if time_from is None else parse_bound(time_from),
        None if time_to is None else parse_bound(time_to),
        None if after is None else decode_place(after),
        Inside(
            () if path is None else _path(path),
            None if first_item is None else parse_key(first_item),
            None if before_item is None else parse_key(before_item),
            None if items is None else _count(items),
        ),
    )
    found.check()
    return found


def _path(text: str) -> tuple[Any, ...]:
    """Several steps are a JSON list, one stands alone."""
    found = parse_key(text)
    return tuple(found) if isinstance(found, list) else (found,)


def _count(text: str) -> int:
    if not text.isdigit():
        raise UserError(f"{text!r} is no number of items")
    return int(text)


def _moment(text: str) -> Number:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"{text!r} is neither a number nor a moment in ISO 8601") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)
