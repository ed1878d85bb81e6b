"""Reads one text file: blocks of bytes in, slices of decoded segments out.

A block of dicts is small enough that its segments stay in the processor's cache, and large enough
that the cost of a call is spread over hundreds of records. Columns need larger ones, because each
block makes its own arrays. The start of every block is kept as a cursor until the frontier has
passed it.
"""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from onyx.errors import Unavailable
from onyx.flow.batch import Read, Segments, as_dicts, as_given, runs_of
from onyx.flow.segment import Segment
from onyx.plugins.files.byte_sources import FileBytes
from onyx.plugins.files.extras import Extras
from onyx.plugins.protocol import ColumnsReader, Cursor
from onyx.plugins.records import BOM, BadRecords, Records
from onyx.plugins.segment_runs import DecodedRuns

BLOCK_BYTES = 32_768
COLUMNS_BLOCK_BYTES = 262_144
"""Measured on three keys: from 128 KiB to 1 MiB a row costs the same, at 64 KiB a tenth more."""


class FileBlocks:
    """An open file, decoded block by block."""

    def __init__(
        self, source: FileBytes, records: Records, bad: BadRecords, start: Cursor,
        record_bytes_max: int, extras: Extras, columns: bool = False,
    ) -> None:  # fmt: skip
        """
        Args:
            source: at the offset that is the state of `start`.
            columns: whether `records` give columns.
        """
        block_bytes = COLUMNS_BLOCK_BYTES if columns else BLOCK_BYTES
        self._source = source
        self._records = records
        self._bad = bad
        self._extras = extras
        self._record_bytes_max = record_bytes_max
        self._block_bytes = min(block_bytes, record_bytes_max)
        self._offset: int = start.state
        self._position = start.position
        self._cursors = deque([(self._position, self._offset)])
        self._tail = b""
        self._ahead: bytes | None = None
        self._at_end = False
        self._skipping = False

    def next(self) -> Read:
        """What the next block gives, possibly nothing yet. Raises Unavailable when it cannot be
        read now."""
        self._read_block()
        if self._skipping:
            self._skip()
            return []
        data = self._tail[: self._record_bytes_max]
        whole = self._at_end and len(data) == len(self._tail)
        read, used = self._records.decode(data, self._position, whole)
        if not used and len(data) == self._record_bytes_max:
            reason = f"longer than recordBytesMax, {self._record_bytes_max} bytes"
            read = [self._bad.segment(self._position, reason, data)]
            self._skipping = True
        read = self._positioned(read)
        self._drop(used)
        return read

    def finished(self) -> bool:
        """Nothing is left to decode."""
        return self._at_end and not self._tail

    def cursor(self, position: int) -> Cursor:
        """The start of the block that holds `position`: its byte offset and the version of the
        file."""
        while len(self._cursors) > 1 and self._cursors[1][0] <= position:
            self._cursors.popleft()
        found, offset = self._cursors[0]
        version = self._source.version()
        return Cursor(found, offset if version is None else [offset, version])

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def _read_block(self) -> None:
        """One block is read ahead, so that the end is known when the last one is decoded."""
        if len(self._tail) >= self._record_bytes_max or self._at_end:
            return
        if self._ahead is None:
            self._ahead = self._source.read(self._block_bytes)
            if self._offset == 0 and self._ahead.startswith(BOM):
                self._ahead = self._ahead.removeprefix(BOM)
                self._offset = len(BOM)
        ahead = self._source.read(self._block_bytes)
        self._tail = self._tail + self._ahead if self._tail else self._ahead
        self._ahead = ahead
        self._at_end = not ahead

    def _positioned(self, read: Read) -> Read:
        """The segments with their extras, at the positions that they take."""
        if not len(read):
            return read
        read = self._extras.added_to(read, self._position)
        if self._offset > self._cursors[-1][1]:
            self._cursors.append((self._position, self._offset))
        self._position += len(read)
        return read

    def _skip(self) -> None:
        """Drop the rest of a record that is too long."""
        newline = self._tail.find(b"\n")
        self._skipping = newline < 0
        self._drop(len(self._tail) if newline < 0 else newline + 1)

    def _drop(self, used: int) -> None:
        self._tail = self._tail[used:]
        self._offset += used


class FileReader(ColumnsReader):
    """An open file (`protocol.Reader`, `protocol.ColumnsReader`)."""

    def __init__(self, blocks: FileBlocks) -> None:
        """`blocks`: of dicts or of columns, as will be read."""
        self._blocks = blocks
        self._chunks = DecodedRuns()
        """Decoded and not taken. What has been taken is let go of at once: it is freed while it is
        still in the processor's cache, by whoever is done with it."""

    def read(self, segments_max: int) -> list[Segment]:
        """Segments of the decoded blocks. When a block cannot be read now, those before it come
        first and the next call raises Unavailable, so that positions do not move."""
        return as_dicts(self._next(segments_max))

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """The next of one kind, in the same way."""
        return as_given(self._next(segments_max))

    def ready(self) -> int:
        """How many segments are decoded."""
        return len(self._chunks)

    def exhausted(self) -> bool:
        """Whether all blocks are decoded and taken."""
        return not len(self._chunks) and self._blocks.finished()

    def cursor(self, position: int) -> Cursor:
        """The start of the block that holds `position`: its byte offset and the version of the
        file."""
        return self._blocks.cursor(position)

    def close(self) -> None:
        """Close the file."""
        self._blocks.close()

    def skip(self, positions: int) -> None:
        """Pass over so many segments, or all that there are."""
        while positions > 0 and not self.exhausted():
            positions -= len(self._next(positions))

    def _next(self, segments_max: int) -> Segments:
        while len(self._chunks) < segments_max and not self._blocks.finished():
            try:
                for run in runs_of(self._blocks.next()):
                    self._chunks.append(run)
            except Unavailable:
                if len(self._chunks):
                    break  # return what is decoded; the next call raises
                raise
        return self._chunks.take(segments_max)
