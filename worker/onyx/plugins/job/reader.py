"""Reads one part after another, in the order of a journal; positions count rows.

A cursor holds the number of a part in the journal, the position of its first row, and how the part
is read from there on. Parts never change, so the same cursor gives the same rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onyx.base.structs import prepared
from onyx.errors import Unavailable
from onyx.plugins.job.feed import PATH, PartsFeed
from onyx.plugins.journalled.reader import JournalReader
from onyx.plugins.protocol import START, ColumnsReader, Cursor, Reader

if TYPE_CHECKING:
    import pyarrow as pa

    from onyx.flow.segment import Segment

BEGUN_MAX = 10_000
"""Parts whose beginnings are remembered; of more, whole runs of parts are read again."""
T = TypeVar("T")
OpenPart = Callable[[str, Cursor], Reader]


@prepared
class At(msgspec.Struct, frozen=True):
    """The state of a cursor, beside that of the journal."""

    part: int = 0
    """Number of the part in the journal."""
    first: int = 0
    """Position of its first row."""
    row: int = 0
    """The row of the part from which it is read."""
    state: Any = None
    """What the reader of the part wants to know to begin there."""


class PartsReader(ColumnsReader):
    """The rows of a partition."""

    def __init__(
        self,
        parts: JournalReader,
        cursor: Cursor,
        open_part: OpenPart,
        feed: PartsFeed | None,
    ) -> None:
        """
        Args:
            parts: at the part of the cursor.
            feed: of the partition; None beside a reader that has it.
        """
        self._parts = parts
        self._open_part = open_part
        self._feed = feed
        at = at_of(cursor)
        self._from = Cursor(at.row, at.state)
        self._begun: deque[tuple[int, int]] = deque([(at.part, at.first)])
        """Number and first position of each part whose rows may be asked for."""
        self._named: str | None = None
        """The part that comes next, taken from the journal and not open yet."""
        self._reader: Reader | None = None
        self._position = at.first + at.row
        self._complete = self._position
        """The greatest position of which a cursor was asked."""

    def read(self, segments_max: int) -> list[Segment]:
        """Rows of the part that is open, or the next one."""
        return self._read(lambda reader: reader.read(segments_max), [])

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """Rows like those of `read`, as columns."""
        nothing: pa.RecordBatch | list[Segment] = []
        return self._read(
            lambda reader: reader.read_columns(segments_max),  # type: ignore[attr-defined]
            nothing,
        )

    def exhausted(self) -> bool:
        """Whether the other job has completed, and all of its parts are read."""
        ended = self._feed is not None and self._feed.ended()
        left = self._reader is not None or self._named is not None
        return ended and not left and not self._parts.ready()

    def cursor(self, position: int) -> Cursor:
        """In the part that is open, or at the beginning of the one that has the position."""
        self._complete = position
        while len(self._begun) > 1 and self._begun[1][1] <= position:
            self._begun.popleft()
        part, first = self._begun[0]
        at = At(part, first)
        if len(self._begun) == 1:  # the part that is open, or comes next
            inner = self._from if self._reader is None else self._reader.cursor(position - first)
            at = At(part, first, inner.position, inner.state)
        state = self._parts.cursor(part).state
        return Cursor(first + at.row, {**state, **msgspec.to_builtins(at)})

    def close(self) -> None:
        """Close the part that is open."""
        if self._reader is not None:
            self._reader.close()
        self._parts.close()

    def _read(self, read: Callable[[Reader], T], nothing: T) -> T:
        while self._reader is not None or self._open_next():
            assert self._reader is not None, "open_next has opened it"
            found = read(self._reader)
            if len(found):  # type: ignore[arg-type]
                self._position += len(found)  # type: ignore[arg-type]
                return found
            if not self._reader.exhausted():
                return nothing
            self._reader.close()
            self._reader = None
            self._begin(self._begun[-1][0] + 1)
        # What is in flight ends first: a task that cannot read does nothing else either.
        if self._feed is not None and self._feed.obstacle and self._complete >= self._position:
            raise Unavailable(self._feed.obstacle)
        return nothing

    def _open_next(self) -> bool:
        if self._named is None:
            named = self._parts.read(1)
            if not named:
                return False
            self._named = str(named[0][PATH])
        # A part that cannot be opened now is the next one still.
        self._reader = self._open_part(self._named, self._from)
        self._named, self._from = None, START
        return True

    def _begin(self, part: int) -> None:
        """The next part begins where the last one has ended."""
        if self._begun[-1][1] == self._position:
            self._begun.pop()  # a part without rows
        elif len(self._begun) >= BEGUN_MAX:
            self._begun.pop()
        self._begun.append((part, self._position))


def at_of(cursor: Cursor) -> At:
    """The part of a cursor's state that is the reader's."""
    return msgspec.convert(cursor.state or {}, At)
