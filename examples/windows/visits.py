"""Visits to a web site, and what the windows of the job files beside make of them."""

from datetime import UTC, datetime

DAY = "2026-03-02"
VISITS = [
    # In the order in which they arrive. The third last is very late.
    {"time": "12:40", "user": "ada", "page": "/", "ms": 20},
    {"time": "12:05", "user": "grace", "page": "/", "ms": 30},
    {"time": "12:10", "user": "ada", "page": "/docs", "ms": 70},
    {"time": "12:25", "user": "grace", "page": "/news", "ms": 90},
    {"time": "12:30", "user": "ada", "page": "/", "ms": 40},
    {"time": "12:20", "user": "grace", "page": "/", "ms": 60},
    {"time": "12:35", "user": "ada", "page": "/docs", "ms": 80},
    {"time": "12:15", "user": "edsger", "page": "/", "ms": 45},
    {"time": "15:00", "user": "ada", "page": "/", "ms": 20},
    {"time": "12:45", "user": "edsger", "page": "/docs", "ms": 60},
    {"time": "14:10", "user": "grace", "page": "/news", "ms": 90},
    {"time": "15:20", "user": "grace", "page": "/", "ms": 30},
]


def visit(number):
    """What the generator gives: the visit of this number, its time as text with a time zone."""
    found = VISITS[number]
    return {**found, "time": f"{DAY}T{found['time']}:00Z"}


def event_time(segment):
    """For the watermark of the input."""
    return datetime.fromisoformat(segment["time"])


def clock(milliseconds):
    """A bound of an extent as a person reads it."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%H:%M}"


def hour(event, window, trigger, state_event, visits):
    """fixed.yaml"""
    begin = clock(state_event["lower_bound"])
    return {"page": state_event["group_key"], "hour": begin, "visits": visits}


def load_time(event, window, trigger, state_event, ms):
    """sliding.yaml"""
    begin = clock(state_event["lower_bound"])
    return {"page": state_event["group_key"], "from": begin, "mean": ms["average"]}


def way(event, window, trigger, state_event, visits):
    """session.yaml: the state of `conj` is a list of all segments."""
    return {
        "user": state_event["group_key"],
        "from": clock(state_event["lower_bound"]),
        "to": clock(state_event["upper_bound"]),
        "pages": [each["page"] for each in sorted(visits, key=event_time)],
    }


def total(event, window, trigger, state_event, visits):
    """global.yaml"""
    return {"visits": visits, "because": state_event["event_type"]}


def distinct():
    """own.yaml: an aggregation. Its state is a sorted list of users."""
    return {
        "init": lambda window: [],
        "create_state_update": lambda window, users, segment: segment["user"],
        "apply_state_update": lambda window, users, user: sorted({*users, user}),
        "super_aggregation": lambda window, some, others: sorted({*some, *others}),
    }


def visitors(event, window, trigger, state_event, users):
    """own.yaml"""
    return {"page": state_event["group_key"], "users": users}
