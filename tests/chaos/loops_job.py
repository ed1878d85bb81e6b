"""Jobs with a loop, or with states in place of segments, under chaos. Imported by the workers."""

from __future__ import annotations

import windows_job

KEYS = 10
LAPS_MAX = 5


def gated_generator(context):
    return windows_job.gated_generator(context)


def measured(number: int):
    """A measurement of one of few keys, which goes round the loop up to `LAPS_MAX` times."""
    found = windows_job.measured(number)
    return {**found, "key": found["key"] % KEYS, "left": number % (LAPS_MAX + 1)}


def lap(segment):
    return {**segment, "left": segment["left"] - 1, "v": segment["v"] + 1}


def counted_lap(segment, state):
    """A lap, with a number that no other has of its key."""
    state.laps = (state.laps or 0) + 1
    return lap({**segment, "lap": state.laps})


def same(segment):
    return segment


def emit_sum(event, window, trigger, state_event, state):
    return windows_job.emit_sum(event, window, trigger, state_event, state)


def emit_total(event, window, trigger, state_event, state):
    return windows_job.emit_count(event, window, trigger, state_event, state)
