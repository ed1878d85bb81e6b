"""Baskets of a shop: what a user has put in is kept until it is bought, or left for a while."""

from datetime import UTC, datetime

DAY = "2026-03-02"
HALF_AN_HOUR_MS = 30 * 60 * 1000
EVENTS = [
    {"time": "12:00", "user": "ada", "item": "tea", "count": 2},
    {"time": "12:04", "user": "grace", "item": "cup", "count": 1},
    {"time": "12:05", "user": "ada", "item": "cup", "count": 1},
    {"time": "12:09", "user": "ada", "item": "tea", "count": 1},
    {"time": "12:10", "user": "ada", "item": None, "count": 0},  # buys
    {"time": "12:20", "user": "grace", "item": "pot", "count": 1},
    {"time": "13:15", "user": "edsger", "item": "pot", "count": 1},
    {"time": "13:20", "user": "grace", "item": "tea", "count": 5},
    {"time": "13:21", "user": "grace", "item": None, "count": 0},
]


def event(number):
    """What the generator gives: the event of this number, its time as text with a time zone."""
    found = EVENTS[number]
    return {**found, "time": f"{DAY}T{found['time']}:00Z"}


def event_time(segment):
    """For the watermark of the input."""
    return datetime.fromisoformat(segment["time"])


def shop(segment, state):
    """Something was put into a basket, or it is bought. `state` is that of the user."""
    now_ms = int(event_time(segment).timestamp() * 1000)
    due_ms = state.timer("left")
    # Event time may lag behind: then the next basket begins before the timer of the last one fires.
    made = [close(state, "left", due_ms)] if due_ms is not None and due_ms <= now_ms else []
    if segment["item"] is None:
        state.orders = (state.orders or 0) + 1
        state.delete_timer("left")
        return [*made, close(state, "bought", now_ms)]
    state.items[segment["item"]] = state.items.get(segment["item"], 0) + segment["count"]
    state.set_timer("left", now_ms + HALF_AN_HOUR_MS)
    return made


def left(timer, state):
    """Nothing was put into a basket for half an hour."""
    return close(state, "left", timer.due_ms)


def close(state, what, at_ms):
    """The basket as a segment; it is empty then."""
    at = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M}"
    basket = {"user": state.key, what: at, "items": dict(state.items), "orders": state.orders or 0}
    del state.items
    return basket
