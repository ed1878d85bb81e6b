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


def is_connection_error(event, segment, error, all_new):
    return isinstance(error, ConnectionError)


def never():
    """A lifecycle whose task does not begin."""
    return {"start_task": lambda event, lifecycle: False}
