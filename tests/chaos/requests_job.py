"""The job that takes requests under chaos. Imported by the workers."""

from __future__ import annotations

from onyx import ack_return


def noted(segment):
    """Gives back a sum over the segments of a request."""
    ack_return("sum", segment["n"])
    return segment


def counted(segment, state):
    """Every segment gets a number of its own in its group."""
    state.seen = (state.seen or 0) + 1
    return {**segment, "seen": state.seen}
