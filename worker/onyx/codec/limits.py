"""The size of a segment that can travel."""

from __future__ import annotations

from onyx.errors import SegmentError

SEGMENT_BYTES_MAX = 2_097_152
"""Largest segment, encoded. With its lineage it fits into a frame of the transport."""


def too_large(size_bytes: int, largest: str, taken_bytes: int) -> SegmentError:
    """The error of a segment of this size, with its largest key and the size of that."""
    return SegmentError(
        f"the segment takes {size_bytes} bytes, of which key {largest!r} takes {taken_bytes}; at "
        f"most {SEGMENT_BYTES_MAX} can travel between tasks: store large values elsewhere and send "
        "their address"
    )
