"""What the job between a queue and files names. Imported by workers."""

from __future__ import annotations

import onyx


def same(segment):
    return segment


_seen = set()


def unsteady(segment):
    """Refuses some segments for good, and others when this process sees them first."""
    n = segment["n"]
    if n % 100 == 0:
        raise ValueError(f"{n} is bad")
    if n % 10 == 1 and n not in _seen:
        _seen.add(n)
        raise onyx.Retry("not now")
    return segment
