"""Dead letters: what is said about a segment that failed, as a segment that can always travel.

A segment may have failed because something in it cannot travel, so values that the codec does not
take are shown as text; and it may be of any size, so the whole letter is bounded: long text is cut,
and what does not fit any more is left out, each with a mark that says so. Leaving such segments out
of the letter was rejected: they are the ones that somebody has to look at.

A letter can be made a segment again (`redriven`), whatever it was written in between. JSON has text
for what it lacks, and Parquet has columns; so a letter names each value that JSON has not, with its
type and its place, and each that is not shown whole. All keys are in each letter, because an output
with columns should not learn of one with the millionth row. Rejected: the segment encoded a second
time, as it was: nobody can read it, and letters would be twice as large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from onyx.errors import SegmentError, message_of
from onyx.flow.instants import has_utc
from onyx.flow.segment import Segment

LETTER_BYTES_MAX = 262_144
"""About so much of a segment is shown, in characters and bytes."""
MESSAGE_CHARACTERS_MAX = 4_096
DEPTH_MAX = 32
"""Levels of a segment that are shown."""
VALUE_BYTES = 16
"""What any value is taken to cost besides its text."""
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
CUT = "cut"
"""The type of a value that is not shown as it was: such a segment cannot be made again."""
_KINDS: Mapping[str, type] = {
    kind.__name__: kind for kind in (datetime, date, time, timedelta, Decimal, bytes, tuple, float)
}
"""What JSON shows as something else; of floats those that are not finite."""
_DATES = frozenset({date, timedelta, Decimal})
LEFT_OUT = "..."
"""Key and value of what is left out."""


class Origin(NamedTuple):
    """Where a tree begins: at a position of an input, or of what the state of a task emits."""

    input: str
    partition: int
    position: int


def dead_letter(
    job: str,
    task: str,
    segment: Segment,
    error: Mapping[str, Any],
    tries: int,
    time_ms: int,
    id: str = "",
    origin: Origin | None = None,
) -> Segment:
    """The letter about one segment.

    Args:
        segment: as the task's function left it.
        error: see `described`.
        tries: how often the segment has been sent to the task.
        time_ms: now, since 1970.
        id: the same for a letter that is written again, and for no other one of the task; empty
            where nobody accounts for segments.
        origin: what the segment was made of, where that is known.
    """
    shown = _Shown(LETTER_BYTES_MAX)
    as_shown = shown.mapping(segment, 0, "")
    return {
        "error": error,
        "job": job,
        "task": task,
        "id": id,
        "origin": None if origin is None else origin._asdict(),
        "time": datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "tries": tries,
        "segment": as_shown,
        "types": "\n".join(shown.types),
    }


def described(error: Exception, line: str) -> dict[str, Any]:
    """An exception, as a letter has it. `line`: file and line of the user's code that raised; empty
    when there is none."""
    found = {"type": type(error).__name__, "message": _text(message_of(error))}
    return found | ({"line": line} if line else {})


def redriven(segment: Segment, types: str) -> Segment:
    """The segment of a letter as its task had it. Changes the one that is given.

    Raises:
        SegmentError: the letter does not have all of it.
    """
    whole: Any = {"": segment}
    for line in reversed(types.split("\n") if types else []):  # what is within comes behind
        kind, _, path = line.partition(" ")
        if kind == CUT:
            raise SegmentError(f"the letter does not have all of it: {path} is cut")
        try:
            *way, last = [_step(each) for each in path.split("/")]
            holder = whole
            for step in way:
                holder = holder[int(step) if isinstance(holder, list) else step]
            key: Any = int(last) if isinstance(holder, list) else last
            holder[key] = _as(_KINDS[kind], holder[key])
        except (LookupError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise SegmentError(f"the letter says {line!r} of its segment: {error}") from error
    return segment


def _as(kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    if kind is tuple or kind is float:
        return kind(value)
    return msgspec.convert(value, kind)


def _path_step(key: str) -> str:
    """A key as a part of a JSON Pointer that is one line."""
    return key.replace("~", "~0").replace("/", "~1").replace("\n", "~2")


def _step(text: str) -> str:
    return text.replace("~2", "\n").replace("~1", "/").replace("~0", "~")


def _text(text: str) -> str:
    """Text that can be encoded, and not too much of it."""
    if len(text) > MESSAGE_CHARACTERS_MAX:
        text = f"{text[:MESSAGE_CHARACTERS_MAX]}{LEFT_OUT} ({len(text)} characters)"
    return text.encode("utf-8", "replace").decode()


class _Shown:
    """Values as they can travel, while there is room."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.types: list[str] = []
        """Type and place of values that JSON shows as something else."""
        self._is_cut = False

    def mapping(self, values: dict[Any, Any], depth: int, path: str) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, value in values.items():
            if self._room <= 0:
                shown[LEFT_OUT] = f"{len(values) - len(shown)} more keys"
                self._is(CUT, path)
                break
            name = self._string(key, path) if isinstance(key, str) else self._repr(key, path)
            shown[name] = self.value(value, depth + 1, f"{path}/{_path_step(name)}")
        return shown

    def value(self, value: Any, depth: int, path: str) -> Any:
        self._room -= VALUE_BYTES
        kind = type(value)
        if value is None or kind is bool or (kind is int and INT_MIN <= value <= INT_MAX):
            return value
        if kind is str:
            return self._string(value, path)
        if kind is float:
            return value if math.isfinite(value) else self._typed(value, path)
        if kind in _DATES or (kind is time and value.tzinfo is None):
            return self._typed(value, path)
        if kind is datetime and value.tzinfo is not None and has_utc(value):
            return self._typed(value, path)
        if kind is bytes and len(value) <= self._room:
            self._room -= len(value)
            return self._typed(value, path)
        if depth >= DEPTH_MAX:
            self._is(CUT, path)
            return LEFT_OUT
        if isinstance(value, dict):
            return self.mapping(value, depth, path)
        if isinstance(value, list | tuple):
            return self._items(value, depth, path)
        return self._repr(value, path)

    def _items(self, values: list[Any] | tuple[Any, ...], depth: int, path: str) -> list[Any]:
        if isinstance(values, tuple):
            self._is("tuple", path)
        shown: list[Any] = []
        for value in values:
            if self._room <= 0:
                shown.append(f"{LEFT_OUT} {len(values) - len(shown)} more items")
                self._is(CUT, path)
                break
            shown.append(self.value(value, depth + 1, f"{path}/{len(shown)}"))
        return shown

    def _repr(self, value: Any, path: str) -> str:
        self._is(CUT, path)
        return self._string(repr_of(value), path)

    def _string(self, text: str, path: str) -> str:
        most = max(self._room, 0)
        shown = text
        if len(text) > most:
            shown = f"{text[:most]}{LEFT_OUT} ({len(text)} characters)"
        shown = shown.encode("utf-8", "replace").decode()
        if shown != text:
            self._is(CUT, path)
        self._room -= len(shown)
        return shown

    def _typed(self, value: Any, path: str) -> Any:
        self._is(type(value).__name__, path)
        return value

    def _is(self, kind: str, path: str) -> None:
        """Where something is cut, that alone is said: nothing else is of use."""
        if self._is_cut:
            return
        line = f"{kind} {path}"
        self._room -= len(line)
        if kind == CUT or self._room <= 0:
            self._is_cut = True
            self.types = [f"{CUT} {path}"]
        else:
            self.types.append(line)


def repr_of(value: Any) -> str:
    """A value as text, whatever its class does; of what may be very long only a part."""
    try:
        if isinstance(value, set | frozenset) and len(value) > MESSAGE_CHARACTERS_MAX:
            return f"{{{', '.join(map(repr, islice(value, 100)))}, {LEFT_OUT}}} ({len(value)})"
        if isinstance(value, bytes | bytearray | memoryview) and len(value) > 1024:
            return f"{bytes(value[:1024])!r}{LEFT_OUT} ({len(value)} bytes)"
        if isinstance(value, int) and abs(value) >= 1 << 10_000:
            return f"an integer of {value.bit_length()} bits"
        return repr(value)
    except BaseException as error:
        return f"a {type(value).__name__} that repr() cannot show: {type(error).__name__}"
