"""What the windows job does with a flight: its time, what windows need of it, what they give.

The event time of a flight is when it left. It is known only when the flight is reported, hours
later: see `prepare.py`.
"""

from datetime import UTC, datetime
from functools import cache

from flights.tasks import MISSING, derive, parse

MINUTE_MS = 60_000
LATE_MINUTES = 15


def event_time(record):
    """When a flight left, or should have left if it never did, in milliseconds since 1970.

    The watermark follows from it, so it is called with every record as the file has it.
    """
    delay = record["dep_delay"]
    minutes = int(record["minute"]) + (0 if delay == MISSING else int(delay))
    return _milliseconds(record["time_hour"]) + minutes * MINUTE_MS


def depart(record):
    """What the windows need of a flight; nothing of one that never left."""
    flight = derive(parse(record))
    if flight["dep_time"] is None:
        return []
    return {
        "departed": event_time(record),
        "airport": flight["origin"],
        "airline": flight["carrier"],
        "aircraft": flight["tailnum"],
        "late": int(flight["delay"] >= LATE_MINUTES),
    }


def departures(event, window, trigger, state_event, count):
    """An hour of an airport."""
    return {
        "airport": state_event["group_key"],
        "hour": _text(state_event["lower_bound"]),
        "departures": count,
    }


def late_share(event, window, trigger, state_event, late):
    """Seven days of an airline. The average of ones and zeros is the share of the ones."""
    return {
        "airline": state_event["group_key"],
        "day": _text(state_event["lower_bound"]),
        "flights": late["n"],
        "late": late["sum"],
        "share": late["average"],
    }


def stay(event, window, trigger, state_event, count):
    """A session of an aircraft: its first and its last departure, and how many there were."""
    return {
        "aircraft": state_event["group_key"],
        "first": _text(state_event["lower_bound"]),
        "last": _text(state_event["upper_bound"]),
        "departures": count,
    }


@cache
def _milliseconds(text):
    """Of a time as the data has it, `2013-01-01T10:00:00Z`: a year has only so many hours."""
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def _text(milliseconds):
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
