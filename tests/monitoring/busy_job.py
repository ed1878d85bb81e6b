"""Functions of jobs that keep the metrics moving; imported by the workers."""

from __future__ import annotations

import time

_tried = set()


def slow(segment):
    """Slower than its input, so that a queue fills; a few segments need a second attempt."""
    time.sleep(0.0005)
    if segment["n"] % 997 == 0 and segment["n"] not in _tried:
        _tried.add(segment["n"])
        raise ConnectionError("not at the first time")
    return segment


def grouped(segment):
    """As slow; one in a hundred cannot be used."""
    time.sleep(0.0005)
    n = segment["n"]
    if n % 101 == 0:
        raise ValueError("of no use")
    return {"n": n, "group": n % 1_000}


def counted(segment, state):
    """Keeps how many a group has had, and wants to hear of it in an hour."""
    state.seen = (state.seen or 0) + 1
    state.set_timer("later", state.now_ms + 3_600_000, clock="processing-time")
    return segment


def later(timer, state):
    """Nobody waits for it."""


def is_connection_error(event, segment, error, all_new):
    return isinstance(error, ConnectionError)


def never():
    """A lifecycle whose task does not begin."""
    return {"start_task": lambda event, lifecycle: False}
