"""Reads one text file as segments: blocks of bytes in, slices of decoded segments out.

A block is small enough that its segments stay in the processor's cache, and large enough that the
cost of a call is spread over hundreds of records. The start of every block is kept as a cursor
until the frontier has passed it.
"""

from __future__ import annotations

from collections import deque

from onyx.errors import Unavailable
from onyx.flow.segment import Segment
from onyx.plugins.files.byte_sources import FileBytes
from onyx.plugins.protocol import Cursor
from onyx.plugins.records import BOM, BadRecords, Records

BLOCK_BYTES = 32_768


class FileReader:
    """An open file (`protocol.Reader`)."""

    def __init__(
        self, source: FileBytes, records: Records, bad: BadRecords, start: Cursor,
        record_bytes_max: int, extras: Extras,
    ) -> None:  # fmt: skip
        """`source` is at the offset that is the state of `start`."""
        self._source = source
        self._records = records
        self._bad = bad
        self._extras = extras
        self._record_bytes_max = record_bytes_max
        self._block_bytes = min(BLOCK_BYTES, record_bytes_max)
        self._offset: int = start.state
        self._position = start.position
        self._cursors = deque([(self._position, self._offset)])
        self._segments: list[Segment] = []
        """Decoded and not taken. What has been taken is let go of at once: it is freed while it is
        still in the processor's cache, by whoever is done with it."""
        self._tail = b""
        self._ahead: bytes | None = None
        self._at_end = False
        self._skipping = False

    def read(self, segments_max: int) -> list[Segment]:
        """Segments of the decoded blocks. When a block cannot be read now, those before it come
        first and the next call raises Unavailable, so that positions do not move."""
        segments = self._take(segments_max)
        while len(segments) < segments_max and not self._finished():
            try:
                self._decode_block()
            except Unavailable:
                if segments:
                    break  # return what is decoded; the next call raises
                raise
            more = self._take(segments_max - len(segments))
            segments = segments + more if segments else more
        return segments

    def exhausted(self) -> bool:
        """Whether all blocks are decoded and taken."""
        return not self._segments and self._finished()

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

    def _take(self, segments_max: int) -> list[Segment]:
        """What is decoded already."""
        segments = self._segments
        if len(segments) <= segments_max:
            self._segments = []
            return segments
        taken = segments[:segments_max]
        del segments[:segments_max]
        return taken

    def _finished(self) -> bool:
        """Nothing is left to decode."""
        return self._at_end and not self._tail

    def _decode_block(self) -> None:
        """Take what the next block gives, possibly nothing yet."""
        self._read_block()
        if self._skipping:
            self._skip()
            return
        data = self._tail[: self._record_bytes_max]
        whole = self._at_end and len(data) == len(self._tail)
        segments, used = self._records.decode(data, self._position, whole)
        if not used and len(data) == self._record_bytes_max:
            reason = f"longer than recordBytesMax, {self._record_bytes_max} bytes"
            segments = [self._bad.segment(self._position, reason, data)]
            self._skipping = True
        self._deliver(segments)
        self._drop(used)

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

    def _deliver(self, segments: list[Segment]) -> None:
        if segments:
            self._extras.add(segments, self._position)
            self._segments = segments
            if self._offset > self._cursors[-1][1]:
                self._cursors.append((self._position, self._offset))
            self._position += len(segments)

    def _skip(self) -> None:
        """Drop the rest of a record that is too long."""
        newline = self._tail.find(b"\n")
        self._skipping = newline < 0
        self._drop(len(self._tail) if newline < 0 else newline + 1)

    def _drop(self, used: int) -> None:
        self._tail = self._tail[used:]
        self._offset += used


class Extras:
    """Fields added to every segment: where it comes from."""

    def __init__(self, file: str, number_key: str | None, file_key: str | None) -> None:
        self._file = file
        self._number_key = number_key
        self._file_key = file_key

    def add(self, segments: list[Segment], first: int) -> None:
        """Add them; `first` is the position of the first segment."""
        if self._number_key is not None:
            for number, segment in enumerate(segments, first):
                segment[self._number_key] = number
        if self._file_key is not None:
            for segment in segments:
                segment[self._file_key] = self._file
