"""Formats of one record a line, JSON lines and plain text, as segments or as columns.

Columns have the same records at the same positions: lines that they do not hold are decoded as
dicts, and only those.
"""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from onyx.base.structs import UNREADABLE
from onyx.codec.refusals import SEGMENT_BYTES_MAX, refused
from onyx.flow.batch import Read, mixed
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.records import BadRecords, reason_of, whole_lines

_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_decoder = msgspec.json.Decoder(dict[str, Any])
_flat_decoder = msgspec.json.Decoder(dict[str, bool | _Integer | float | str | None])
"""A decoder of objects that hold no others. Whatever it gives can travel, but for its size: to make
sure of that afterwards would take more than half as long as decoding."""
FLAT_BYTES_MAX = SEGMENT_BYTES_MAX // 2
"""No flat object takes twice the bytes as a segment: the shortest pair with a number of nine bytes
is `"":1e1,`."""
NEWLINE, RETURN, OPEN, CLOSE = b"\n\r{}"
_WRONG = (*UNREADABLE, OverflowError)
SAMPLE_BYTES = 16_384
"""From which types are learned at first: what is not decoded by known types is a dict before."""
_LINE = pa.schema([("line", pa.string())])


class JsonLineRecords:
    """A JSON object a line; blank lines are no records."""

    def __init__(self, bad: BadRecords) -> None:
        self._bad = bad
        self._flat = True
        """No block so far had objects that hold others."""

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[list[Segment], int]:
        """All lines in one call of the decoder; a block with a bad line again line by line."""
        lines = whole_lines(data, at_end)
        count = count_objects(lines)  # first: it takes the bytes into the processor's cache
        segments = self._decoded(lines)
        if segments is None or len(segments) != count:
            segments = self._one_by_one(lines, first)
        return segments, len(lines)

    def _decoded(self, lines: bytes) -> list[Segment] | None:
        """None if there is something else than objects that can travel."""
        if self._flat and len(lines) <= FLAT_BYTES_MAX:
            with contextlib.suppress(*_WRONG):
                return _flat_decoder.decode_lines(lines)
        try:
            segments = _decoder.decode_lines(lines)
        except _WRONG:
            return None
        self._flat = self._flat and len(lines) > FLAT_BYTES_MAX
        return None if refused(segments) else segments

    def _one_by_one(self, lines: bytes, first: int) -> list[Segment]:
        segments: list[Segment] = []
        for line in lines.split(b"\n"):
            if line and not line.isspace():
                segments.append(self.one(line, first + len(segments)))
        return segments

    def one(self, line: bytes, position: int) -> Segment:
        """The segment of one record, or the one in its place if it is bad."""
        if self._flat and len(line) <= FLAT_BYTES_MAX:
            with contextlib.suppress(*_WRONG):
                return _flat_decoder.decode(line)
        segment: Segment = {}
        try:
            segment = _decoder.decode(line)
            self._flat = self._flat and len(line) > FLAT_BYTES_MAX
            reason = reason_of(segment)
        except _WRONG as error:
            reason = f"not a JSON object ({error})"
        return self._bad.segment(position, reason, line) if reason else segment


class TextRecords:
    """Every line is a segment `{"line": text}`, blank ones too."""

    def __init__(self, bad: BadRecords) -> None:
        self._bad = bad

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[list[Segment], int]:
        """All lines in one call; a block that is no UTF-8 again line by line."""
        lines = whole_lines(data, at_end)
        try:
            texts = split(lines.decode())
        except UnicodeDecodeError:
            return self._one_by_one(lines, first), len(lines)
        return [{"line": text} for text in texts], len(lines)

    def _one_by_one(self, lines: bytes, first: int) -> list[Segment]:
        segments: list[Segment] = []
        for line in lines.removesuffix(b"\n").split(b"\n"):
            try:
                segments.append({"line": line.decode().removesuffix("\r")})
            except UnicodeDecodeError as error:
                segments.append(self._bad.segment(first + len(segments), f"{error}", line))
        return segments


def count_objects(lines: bytes) -> int | None:
    """How many lines there are, if each begins and ends with a brace; None if they do not.

    If so, no object goes over the end of a line, and as many objects as lines are one each. Without
    this, two objects in one line and one in two lines would count as three records or not, by what
    else is in the block.
    """
    lines = lines.removesuffix(b"\n")
    if RETURN in lines:
        lines = lines.replace(b"\r\n", b"\n").removesuffix(b"\r")
    if not (lines.startswith(b"{") and lines.endswith(b"}")):
        return None
    data = np.frombuffer(lines, dtype=np.uint8)
    # Passes over all bytes without an index of any: as few calls, and a third of bytes.count.
    ended = data[1:-1] == NEWLINE
    newlines = int(np.count_nonzero(ended))
    ended &= data[:-2] == CLOSE
    ended &= data[2:] == OPEN
    return newlines + 1 if np.count_nonzero(ended) == newlines else None


def split(text: str) -> list[str]:
    """The lines of a text, without their ends."""
    if not text:
        return []
    lines = text.removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


class JsonLineColumns:
    """A JSON object a line (`records.Records`)."""

    def __init__(self, columns: JsonColumns, bad: BadRecords) -> None:
        """`columns`: shared by all files of the task."""
        self._columns = columns
        self._dicts = JsonLineRecords(bad)
        self._bad = bad

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[Read, int]:
        """Columns; dicts for lines that no columns hold."""
        lines = whole_lines(data, at_end)
        if not self._columns.known:
            lines = lines[: lines.find(b"\n", SAMPLE_BYTES) + 1] or lines
        count = count_objects(lines)
        columns = self._columns.of_lines(lines, count) if count else None
        if columns is not None:
            return columns, len(lines)
        records = [line for line in lines.split(b"\n") if line and not line.isspace()]

        def decoded(index: int) -> tuple[Segment, bool]:
            kept = self._bad.kept
            segment = self._dicts.one(records[index], first + index)
            return segment, self._bad.kept == kept

        return self._columns.of_some(records, decoded), len(lines)


class TextColumns:
    """Every line is a value of the column `line` (`records.Records`)."""

    def __init__(self, bad: BadRecords) -> None:
        self._dicts = TextRecords(bad)

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[Read, int]:
        """A column; dicts for lines that are no UTF-8."""
        lines = whole_lines(data, at_end)
        try:
            return _column(split(lines.decode())), len(lines)
        except UnicodeDecodeError:
            segments, used = self._dicts.decode(lines, first, at_end)
        bad = np.array(["_error" in each for each in segments], dtype=np.bool_)
        texts = [each["line"] for each in segments if "_error" not in each]
        wrong = [each for each in segments if "_error" in each]
        pieces = (np.flatnonzero(~bad), _column(texts)), (np.flatnonzero(bad), wrong)
        return mixed(pieces), used


def _column(texts: list[str]) -> Columns:
    return Columns(pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=_LINE))
