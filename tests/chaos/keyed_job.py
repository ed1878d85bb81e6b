"""The job with keyed state under chaos. Imported by the workers.

Every segment is computed from its number, and what is written says enough to be compared with a
plain loop whatever the order in which partitions were read.
"""

from __future__ import annotations

import windows_job

KEYS = 200
GAP_MS = 4_000


def gated_generator(context):
    return windows_job.gated_generator(context)


def moved(number: int):
    """A position of one of many keys."""
    key = number * 2_654_435_761 % KEYS
    return {"key": key, "n": number, "v": number % 97, "time": number}


def track(segment, state):
    """Every segment gets a number of its own in its group, and the sum until then."""
    state.seen = (state.seen or 0) + 1
    state.total = (state.total or 0) + segment["v"]
    state.by_rest[segment["n"] % 5] = state.by_rest.get(segment["n"] % 5, 0) + 1
    state.recent.append(segment["n"])
    if len(state.recent) > 8:
        del state.recent[:4]
    if state.timer("idle") is None:
        state.set_timer("idle", segment["time"] + GAP_MS)
    return {"row": "step", "key": state.key, "n": segment["n"], "seen": state.seen,
            "total": state.total, "v": segment["v"]}  # fmt: skip


def idle(timer, state):
    """Says what came since the last one; the timers of a group make all of its segments up."""
    row = {"row": "timer", "key": state.key, "due": timer.due_ms, "seen": state.seen,
           "told": state.told or 0, "by_rest": sum(state.by_rest.values())}  # fmt: skip
    state.told = state.seen
    return row
