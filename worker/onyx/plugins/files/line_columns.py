"""The formats of one record a line as columns.

The records are those of `line_records`, at the same positions: a block that the columns do not hold
is decoded there.
"""

from __future__ import annotations

import pyarrow as pa

from onyx.flow.batch import Segments
from onyx.flow.columns import Columns
from onyx.plugins.files.line_records import JsonLineRecords, TextRecords, count_objects, split
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.records import BadRecords, whole_lines

SAMPLE_BYTES = 16_384
"""From which types are learned at first: what is not decoded by known types is a dict before."""
_LINE = pa.schema([("line", pa.string())])


class JsonLineColumns:
    """A JSON object a line (`records.Records`)."""

    def __init__(self, columns: JsonColumns, bad: BadRecords) -> None:
        """`columns`: shared by all files of the task."""
        self._columns = columns
        self._dicts = JsonLineRecords(bad)
        self._bad = bad

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[Segments, int]:
        """Columns; dicts for a block with a bad record, or with one that no columns hold."""
        lines = whole_lines(data, at_end)
        if not self._columns.known:
            lines = lines[: lines.find(b"\n", SAMPLE_BYTES) + 1] or lines
        count = count_objects(lines)
        columns = self._columns.of_lines(lines, count) if count else None
        if columns is not None:
            return columns, len(lines)
        kept = self._bad.kept
        segments, used = self._dicts.decode(lines, first, True)
        if self._bad.kept > kept:
            return segments, used
        return self._columns.of_dicts(segments), used


class TextColumns:
    """Every line is a value of the column `line` (`records.Records`)."""

    def __init__(self, bad: BadRecords) -> None:
        self._dicts = TextRecords(bad)

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[Segments, int]:
        """A column; dicts for a block that is no UTF-8."""
        lines = whole_lines(data, at_end)
        try:
            texts = split(lines.decode())
        except UnicodeDecodeError:
            return self._dicts.decode(lines, first, at_end)
        return Columns(
            pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=_LINE)
        ), len(lines)
