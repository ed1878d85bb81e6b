"""Dead letters: what is said about a segment that failed, as a segment that can always travel.

A segment may have failed because something in it cannot travel, so values that the codec does not
take are shown as text; and it may be of any size, so the whole letter is bounded: long text is cut,
and what does not fit any more is left out, each with a mark that says so. Leaving such segments out
of the letter was rejected: they are the ones that somebody has to look at.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

from onyx.errors import message_of
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
_DATES = frozenset({date, timedelta, Decimal})
LEFT_OUT = "..."
"""Key and value of what is left out."""


def dead_letter(
    job: str, task: str, segment: Segment, error: Exception, line: str, tries: int, time_ms: int
) -> Segment:
    """The letter about one segment.

    Args:
        segment: as the task's function left it.
        line: file and line of the user's code that raised; empty when there is none.
        tries: how often the segment has been sent to the task.
        time_ms: now, since 1970.
    """
    described = {"type": type(error).__name__, "message": _text(message_of(error))}
    if line:
        described["line"] = line
    return {
        "error": described,
        "job": job,
        "task": task,
        "time": datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "tries": tries,
        "segment": _Shown(LETTER_BYTES_MAX).mapping(segment, 0),
    }


def _text(text: str) -> str:
    """Text that can be encoded, and not too much of it."""
    if len(text) > MESSAGE_CHARACTERS_MAX:
        text = f"{text[:MESSAGE_CHARACTERS_MAX]}{LEFT_OUT} ({len(text)} characters)"
    return text.encode("utf-8", "replace").decode()


class _Shown:
    """Values as they can travel, while there is room."""

    def __init__(self, room: int) -> None:
        self._room = room

    def mapping(self, values: dict[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, value in values.items():
            if self._room <= 0:
                shown[LEFT_OUT] = f"{len(values) - len(shown)} more keys"
                break
            name = key if isinstance(key, str) else repr_of(key)
            shown[self._string(name)] = self.value(value, depth + 1)
        return shown

    def value(self, value: Any, depth: int) -> Any:
        self._room -= VALUE_BYTES
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int and INT_MIN <= value <= INT_MAX:
            return value
        if kind in _DATES or (kind is time and value.tzinfo is None):
            return value
        if kind is datetime and value.tzinfo is not None and has_utc(value):
            return value
        if kind is str:
            return self._string(value)
        if kind is bytes and len(value) <= self._room:
            self._room -= len(value)
            return value
        if depth >= DEPTH_MAX:
            return LEFT_OUT
        if isinstance(value, dict):
            return self.mapping(value, depth)
        if isinstance(value, list | tuple):
            return self._items(value, depth)
        return self._string(repr_of(value))

    def _items(self, values: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        shown: list[Any] = []
        for value in values:
            if self._room <= 0:
                shown.append(f"{LEFT_OUT} {len(values) - len(shown)} more items")
                break
            shown.append(self.value(value, depth + 1))
        return shown

    def _string(self, text: str) -> str:
        most = max(self._room, 0)
        if len(text) > most:
            text = f"{text[:most]}{LEFT_OUT} ({len(text)} characters)"
        text = text.encode("utf-8", "replace").decode()
        self._room -= len(text)
        return text


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
