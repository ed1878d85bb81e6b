"""Which segments of a batch cannot travel, and why: the same inside a process and between two.

Within one process a batch passes from task to task without being encoded. Without a check there, a
job would run on a laptop and fail in a cluster. So every segment that a function, an input or a
trigger makes is checked once, before it is sent: the types and keys of a whole batch in a few calls
in C, and limits by encoding the values, whose bytes are discarded. Only in a batch with an unusual
value are segments checked one by one, to find the segment, the key and the reason.

A refused segment fails as if the function had raised for it; the caller decides what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from gc import get_referents
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from onyx.codec.kinds import PLAIN, TEXT, fits, levels
from onyx.codec.limits import SEGMENT_BYTES_MAX, too_large
from onyx.codec.reasons import wrong
from onyx.codec.refused_rows import refused_rows
from onyx.errors import SegmentError, describe_type
from onyx.flow.batch import Segment, chosen_by, format_of
from onyx.flow.leaves import Leaves
from onyx.flow.segment import SegmentFailure

_encoder = msgspec.msgpack.Encoder()
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)


def refused(segments: Sequence[Segment]) -> list[SegmentFailure]:
    """The segments that cannot travel, by index, each with a SegmentError that names the key."""
    if not segments or _all_fit(segments):
        return []
    found = ((index, refusal(segment)) for index, segment in enumerate(segments))
    return [(index, error) for index, error in found if error is not None]


def fits_alone(segment: Segment) -> bool:
    """Whether nothing speaks against a segment: `refused` for one, in a third of the time. False
    may be wrong."""
    try:
        is_plain = PLAIN.issuperset(map(type, segment.values()))
        is_plain = is_plain and TEXT.issuperset(map(type, segment))
        return is_plain and len(_encoder.encode(segment)) <= SEGMENT_BYTES_MAX
    except _WRONG:
        return False


def refuse(leaves: Leaves) -> Leaves:
    """What a function made of a batch, without what it made of parents of which something cannot
    travel: these have failed."""
    found = format_of(leaves.segments).choose(refused, refused_rows)(leaves.segments)
    if not found:
        return leaves
    parents = np.arange(len(leaves)) if leaves.parents is None else leaves.parents
    failures: dict[int, Exception] = {}
    for index, error in found:
        failures.setdefault(int(parents[index]), error)
    kept = np.isin(parents, list(failures), invert=True)
    return Leaves(
        chosen_by(leaves.segments, kept),
        parents[kept],
        None if leaves.child_index is None else leaves.child_index[kept],
        sorted([*leaves.failures, *failures.items()], key=itemgetter(0)),
    )


def refusal(segment: Any) -> SegmentError | None:
    """Why a segment cannot travel; None if it can."""
    if type(segment) is not dict:
        return SegmentError(
            f"the segment is {describe_type(segment)}, not a dict; a function returns a dict, a "
            "list of dicts or None"
        )
    for path, what, hint in wrong(segment, "", -1):
        what_is_wrong = f"key {path!r} holds {what}" if path else f"the segment has {what}"
        return SegmentError(f"{what_is_wrong}, which cannot travel between tasks: {hint}")
    size = _size(segment)
    return _too_large(segment, size) if size > SEGMENT_BYTES_MAX else None


def _all_fit(segments: Sequence[Segment]) -> bool:
    """Whether nothing speaks against any of them; False may be wrong."""
    try:
        keys = set().union(*segments)
        values = get_referents(*segments)
        size = len(_encoder.encode(values)) + len(_encoder.encode(list(keys)))
        if size > SEGMENT_BYTES_MAX and max(map(_size, segments)) > SEGMENT_BYTES_MAX:
            return False
        if not TEXT.issuperset(map(type, keys)):
            return False
        return PLAIN.issuperset(map(type, values)) or all(map(fits, levels(values)))
    except _WRONG:
        return False


def _size(segment: Segment) -> int:
    return len(_encoder.encode(segment))


def _too_large(segment: Segment, size: int) -> SegmentError:
    largest = max(segment, key=lambda key: len(_encoder.encode([key, segment[key]])))
    taken = len(_encoder.encode(segment[largest]))
    return too_large(size, largest, taken)
