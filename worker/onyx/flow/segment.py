"""A segment as a dict, and how one fails. In a module of its own, so that options of plugins can be
read where neither Arrow nor NumPy is wanted: by clients and by the operator.

A failure is `(index of the segment in its batch, exception)`, whoever found it: the function, a
window, the grouping of a child, the codec. A batch gathers its failures, and one module decides
what becomes of each (`routing`). Raising at once was rejected: the other segments of a batch would
fail with the first bad one.
"""

from __future__ import annotations

from typing import Any

from onyx.errors import UserError

Segment = dict[str, Any]

SegmentFailure = tuple[int, Exception]
"""Index of the segment in the batch, and what was raised for it."""


class RetriesExhausted(UserError):
    """A flow condition asks for a retry, and the segment has been retried as often as it may."""


class Refusal(UserError):
    """A segment that its task or the next one cannot take. The message says all."""


class JoinRefusal(Refusal):
    """A segment that cannot be looked up in a table, or cannot get what the table has for it."""


class BadRecord(Refusal):
    """What an input has read is no segment of its job: the message names where it was read."""


class UndecodedRecord(BadRecord):
    """A record that an input could not decode (`onBadRecord: deadLetter`)."""


ERROR, RAW = "_error", "_raw"
"""Keys of a segment in the place of a record that could not be decoded: why, and the record."""


def stands_in(segment: Segment) -> bool:
    """Whether a segment is in the place of a record that could not be decoded."""
    return segment.get(ERROR) is not None and segment.get(RAW) is not None
