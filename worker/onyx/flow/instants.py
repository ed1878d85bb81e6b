"""Moments as instants: without a zone they are in UTC, and a date is its midnight.

Python compares two datetimes of one zone by what their clocks show, and lets none of an hour that
comes twice equal one of another zone. So whoever compares moments compares their distance from the
epoch, and whoever looks them up has them in UTC.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND, _MICROSECOND = timedelta(milliseconds=1), timedelta(microseconds=1)


def since_epoch(moment: date) -> timedelta:
    """The distance of a datetime or a date, exactly."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    elif moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment - _EPOCH


def milliseconds(moment: date | str) -> int:
    """The milliseconds since the epoch of a datetime, of a date, or of either as ISO 8601 text: of
    a fraction the one before.

    Raises:
        ValueError: the text is neither.
    """
    return _parsed(moment) // _MILLISECOND


def microseconds(moment: date | str) -> int:
    """The microseconds, as `milliseconds`."""
    return _parsed(moment) // _MICROSECOND


def _parsed(moment: date | str) -> timedelta:
    return since_epoch(datetime.fromisoformat(moment) if isinstance(moment, str) else moment)


def looked_up(value: Any) -> Any:
    """A value as a dict finds it: a datetime with a zone in UTC, all else as it is."""
    zoned = type(value) is datetime and value.tzinfo not in (None, UTC)
    return value.astimezone(UTC) if zoned else value


def has_utc(moment: datetime) -> bool:
    """Whether a datetime with a zone is of the years 1 to 9999 in UTC, too."""
    if MINYEAR < moment.year < MAXYEAR:
        return True
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return False
    return True
