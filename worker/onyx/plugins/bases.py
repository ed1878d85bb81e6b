"""Bases of simple plugins: readers of sources that fetch segments by position (from memory, a
database, or computed), and outputs whose segments are durable when `write` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.protocol import ColumnsReader, Cursor, Reader

if TYPE_CHECKING:
    import pyarrow as pa

Fetch = Callable[[int, int], list[Segment]]
"""`fetch(position, segments_max)`: the segments from a position on; fewer or none if there are no
more now."""
FetchColumns = Callable[[int, int], "pa.RecordBatch | list[Segment]"]
"""What a fetch gives, as columns, or as dicts where columns do not hold them."""


class IndexedReader(Reader):
    """A partition read by position. Every position is a cursor."""

    def __init__(
        self,
        position: int,
        fetch: Fetch,
        end: Callable[[], int | None],
        passed: Callable[[int], None] = lambda position: None,
    ) -> None:
        """
        Args:
            position: of the first segment to read.
            fetch: returns segments by position.
            end: number of segments that there will ever be; None while that is unknown.
            passed: called with a position before which nothing is read again.
        """
        self._position = position
        self._fetch = fetch
        self._end = end
        self._passed = passed

    def read(self, segments_max: int) -> list[Segment]:
        """What `fetch` gives from the position of the reader on."""
        segments = self._fetch(self._position, segments_max)
        self._position += len(segments)
        return segments

    def exhausted(self) -> bool:
        """Whether the end is known and reached."""
        end = self._end()
        return end is not None and self._position >= end

    def cursor(self, position: int) -> Cursor:
        """The position itself; `passed` learns it."""
        self._passed(position)
        return Cursor(position)

    def close(self) -> None:
        """Nothing is open."""


class IndexedColumnsReader(IndexedReader, ColumnsReader):
    """A reader for a source that fetches columns."""

    def __init__(
        self,
        position: int,
        fetch: FetchColumns,
        end: Callable[[], int | None],
        passed: Callable[[int], None] = lambda position: None,
    ) -> None:
        super().__init__(position, lambda first, most: [], end, passed)
        self._fetch_columns = fetch

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """What `fetch` gives from the position of the reader on."""
        found = self._fetch_columns(self._position, segments_max)
        self._position += len(found)
        return found


def partition_names(count: int) -> list[str]:
    """`count` names of partitions: numbers with leading zeros, so that text sorts like numbers."""
    width = len(str(count - 1))
    return [f"{number:0{width}d}" for number in range(count)]


class ImmediateOutput:
    """Counts what was written; a subclass implements `deliver`."""

    cooperative = True

    def __init__(self) -> None:
        self._durable = 0

    def deliver(self, segments: list[Segment]) -> None:
        """Write the segments; they are durable when this returns. Subclasses implement it."""
        raise NotImplementedError

    def write(self, segments: list[Segment]) -> None:
        """Deliver the segments and count them."""
        self.deliver(segments)
        self._durable += len(segments)

    def durable(self) -> int:
        """All segments that were delivered."""
        return self._durable

    def flush(self) -> None:
        """Nothing waits."""

    def tick(self) -> None:
        """Nothing waits."""

    def fence(self, live: Sequence[GroupId]) -> None:
        """Nothing is staged, so nothing can be published late."""

    def seal(self) -> None:
        """The result is complete already."""

    def close(self) -> None:
        """Leave the task; subclasses release what they hold."""


class ImmediateColumnsOutput(ImmediateOutput):
    """Takes columns as well (`protocol.ColumnsOutput`)."""

    def deliver_columns(self, columns: pa.RecordBatch) -> None:
        """`deliver` for the rows of a record batch. Subclasses implement it."""
        raise NotImplementedError

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Deliver the rows and count them."""
        self.deliver_columns(columns)
        self._durable += columns.num_rows
