"""Which segments of a batch cannot travel, and why: the same inside a process and between two.

Within one process a batch passes from task to task without being encoded. Without a check there, a
job would run on a laptop and fail in a cluster. So every segment that a function, an input or a
trigger makes is checked once, before it is sent: the types and keys of a whole batch in a few calls
in C, and limits by encoding the values, whose bytes are discarded. Only in a batch with an unusual
value are segments checked one by one, to find the segment, the key and the reason.

A refused segment fails as if the function had raised for it; the caller decides what follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, time
from gc import get_referents
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from onyx.codec.kinds import KINDS, NESTING_MAX, TEXT, fits, levels, zone_is_wrong
from onyx.codec.limits import SEGMENT_BYTES_MAX, too_large
from onyx.codec.refused_rows import refused_rows
from onyx.errors import SegmentError, describe_type
from onyx.flow.batch import Segment, chosen_by, format_of
from onyx.flow.leaves import Leaves
from onyx.flow.segment_failure import SegmentFailure

_encoder = msgspec.msgpack.Encoder()
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)
_HINTS = {
    "datetime": "give it a time zone, as in value.replace(tzinfo=datetime.UTC)",
    "time": "leave out its time zone, or use a datetime",
    "set": "make it a list",
    "frozenset": "make it a list",
    "int": "make it a str, or a Decimal",
    "bytearray": "make it bytes",
    "memoryview": "make it bytes",
    "complex": "make it a list of two floats",
    "UUID": "make it a str",
}
_USABLE = (
    "use None, bool, int, float, str, bytes, date, time, timedelta, Decimal, a datetime with a "
    "time zone, or lists, tuples and dicts of these"
)


def refused(segments: Sequence[Segment]) -> list[SegmentFailure]:
    """The segments that cannot travel, by index, each with a SegmentError that names the key."""
    if not segments or _all_fit(segments):
        return []
    found = ((index, refusal(segment)) for index, segment in enumerate(segments))
    return [(index, error) for index, error in found if error is not None]


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
    for path, what, hint in _wrong(segment, "", -1):
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
        return TEXT.issuperset(map(type, keys)) and all(map(fits, levels(values)))
    except _WRONG:
        return False


def _size(segment: Segment) -> int:
    return len(_encoder.encode(segment))


def reason(value: Any, keys: frozenset[type] = TEXT) -> str:
    """What is wrong with one value, and what to do; empty if nothing is.

    Args:
        keys: types that keys of dicts may have.
    """
    return next((f"{what}: {hint}" for _, what, hint in _wrong(value, "", -1, keys)), "")


_Wrong = Iterator[tuple[str, str, str]]
"""Where, what, and what to do."""


def _wrong(value: Any, path: str, depth: int, keys: frozenset[type] = TEXT) -> _Wrong:
    kind = type(value)
    if kind in (list, tuple, dict) and depth >= NESTING_MAX:
        yield path, f"a {kind.__name__} nested deeper than {NESTING_MAX}", "make it flatter"
    elif kind is dict:
        yield from _wrong_dict(value, path, depth, keys)
    elif kind is list or kind is tuple:
        for index, each in enumerate(value):
            yield from _wrong(each, f"{path}[{index}]", depth + 1, keys)
    elif kind not in KINDS:
        yield path, describe_type(value), _hint(kind)
    elif kind in (datetime, time) and zone_is_wrong(value):
        which = "without" if kind is datetime else "with"
        yield path, f"a {kind.__name__} {which} a time zone", _HINTS[kind.__name__]
    elif kind is int and not -(2**63) <= value < 2**64:
        yield path, "an int beyond 64 bits", _HINTS["int"]
    elif kind is str and not _encodes(value):
        yield path, "a str with half of a surrogate pair", "leave such characters out"


def _wrong_dict(value: Mapping[Any, Any], path: str, depth: int, keys: frozenset[type]) -> _Wrong:
    for key, each in value.items():
        if type(key) not in keys:
            what = "make the keys of dicts str" if keys is TEXT else _hint(type(key))
            yield path, f"a key that is {describe_type(key)}", what
        elif type(key) is str and not _encodes(key):
            yield path, "a key with half of a surrogate pair", "leave such characters out"
        else:
            yield from _wrong(each, f"{path}.{key}" if path else str(key), depth + 1, keys)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hint(kind: type) -> str:
    if kind.__module__.partition(".")[0] == "numpy":
        convert = "item" if hasattr(kind, "item") and kind.__name__ != "ndarray" else "tolist"
        return f"convert it with .{convert}()"
    if kind.__name__ in _HINTS:
        return _HINTS[kind.__name__]
    for base in kind.__mro__[1:]:
        if base in KINDS and base is not type(None):
            return f"convert it with {base.__name__}(), for its subclass would arrive as that"
    return _USABLE


def _too_large(segment: Segment, size: int) -> SegmentError:
    largest = max(segment, key=lambda key: len(_encoder.encode([key, segment[key]])))
    taken = len(_encoder.encode(segment[largest]))
    return too_large(size, largest, taken)
