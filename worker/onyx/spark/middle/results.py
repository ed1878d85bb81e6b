"""The input half of a task with a Spark stage: rows of results, bundle after bundle, as segments.

There are always `PARTITIONS` partitions. File i of the result of bundle b belongs to partition
b + i, modulo their number, and a partition has the rows of its files one after the other. Results
are final, so these positions never change. The partitions end behind the result of the last bundle.

Rejected: a partition for each file, because partitions are listed before anything is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onyx.base.seams import Clock
from onyx.errors import Unavailable
from onyx.flow.segment import Segment
from onyx.plugins.bases import partition_names
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.protocol import ColumnsReader, Cursor, Input, PluginContext, Reader
from onyx.spark.middle.bundles import Bundles
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.request import folder_of
from onyx.spark.result_files import SUFFIX

if TYPE_CHECKING:
    import pyarrow as pa


PARTITIONS = 8
FIRST = 1
"""Number of the first bundle."""


class StageResults(Input):
    """The input of one peer."""

    examined = True
    cooperative = False
    """Beside the half that writes."""

    def __init__(self, context: PluginContext, options: MiddleOptions) -> None:
        self._context = context
        self._folder = folder_of(context, options)
        self._files = FilesInput(
            context,
            FilesInputOptions(path=f"{self._folder.location}/*{SUFFIX}", hive_partitioning=False),
        )

    def partitions(self) -> Sequence[str]:
        """Always the same."""
        return partition_names(PARTITIONS)

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader of one of them."""
        return ResultReader(
            self._folder, int(partition), cursor, self._files.open, self._context.clock
        )

    def close(self) -> None:
        """Leave the task; results stay."""
        self._files.close()


def first_needed(cursors: Sequence[Cursor]) -> int:
    """The first bundle whose result is read again, or was not read yet, by the cursors of all
    partitions. Until each has one, all are needed."""
    if len(cursors) < PARTITIONS:
        return FIRST
    return min((each.state or (FIRST, 0))[0] for each in cursors)


class ResultReader(ColumnsReader):
    """A partition."""

    def __init__(
        self,
        folder: Bundles,
        partition: int,
        cursor: Cursor,
        open_file: Callable[[str, Cursor], Reader],
        clock: Clock,
    ) -> None:
        """`cursor`: its state is a bundle, and the position at which that begins."""
        self._folder = folder
        self._partition = partition
        self._open_file = open_file
        self._clock = clock
        self._position = cursor.position
        bundle, first = cursor.state or (FIRST, 0)
        self._bundle: int = bundle
        """The next one."""
        self._first: int = first
        """Position behind all files that were looked at."""
        self._starts: deque[tuple[int, int]] = deque([(bundle, first)])
        """Bundles that were begun, each with its first position."""
        self._files: deque[tuple[int, str, int]] = deque()
        """Not looked at yet: bundle, name and rows."""
        self._reader: Reader | None = None
        self._last = False
        """The present bundle is the last one."""
        self._next_s = 0.0

    def read(self, segments_max: int) -> list[Segment]:
        """Rows of the present file. Raises Unavailable when it cannot be read now."""
        found: list[Segment] = []
        while not found and self._has_file():
            assert self._reader is not None, "asked before"
            found = self._reader.read(segments_max)
            if self._reader_ended(len(found)):
                break
        return found

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """What `read` gives, as columns."""
        found: pa.RecordBatch | list[Segment] = []
        while not len(found) and self._has_file():
            assert isinstance(self._reader, ColumnsReader), "Parquet has columns"
            found = self._reader.read_columns(segments_max)
            if self._reader_ended(len(found)):
                break
        return found

    def exhausted(self) -> bool:
        """Whether the last row of the last result was read."""
        ended = self._reader is None or self._reader.exhausted()
        return self._last and not self._files and ended

    def cursor(self, position: int) -> Cursor:
        """The position, with the bundle that it is in."""
        while len(self._starts) > 1 and self._starts[1][1] <= position:
            self._starts.popleft()
        return Cursor(position, list(self._starts[0]))

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()

    def _reader_ended(self, count: int) -> bool:
        """Count what was read; False when the file is through, so that the next one may follow."""
        self._position += count
        reader = self._reader
        if count or reader is None or not reader.exhausted():
            return True
        reader.close()
        self._reader = None
        return False

    def _has_file(self) -> bool:
        """Have the file open that has the next position; False while there is none."""
        while self._reader is None:
            if not self._files and not self._begin_bundle():
                return False
            self._open_next()
        return True

    def _open_next(self) -> None:
        """Open the next file of the bundle, unless all of its rows are before the position."""
        if not self._files:
            return
        number, name, rows = self._files[0]
        path, first = self._folder.file(number, name), self._first
        wanted = first + rows > self._position
        # If it is gone, another peer has the partition, and this one knows soon.
        if wanted and not self._folder.has_file(number, name):
            raise Unavailable(f"{path} is gone, because all of its rows are complete")
        if wanted:
            self._reader = self._open_file(path, Cursor(self._position - first))
        # Not before it is open: one that cannot be opened now is the next one still.
        self._files.popleft()
        self._first = first + rows

    def _begin_bundle(self) -> bool:
        """Take the files of the next result; False while it does not stand."""
        now_s = self._clock.monotonic_s()
        if self._last or now_s < self._next_s:
            return False
        number, folder = self._bundle, self._folder
        result = folder.result(number)
        if result is None:
            self._next_s = now_s + folder.poll_s
            return False
        self._files.extend(
            (number, name, rows)
            for index, (name, rows) in enumerate(result.files)
            if (number + index) % PARTITIONS == self._partition
        )
        self._starts.append((number, self._first))
        self._last, self._bundle = result.last, number + 1
        return True
