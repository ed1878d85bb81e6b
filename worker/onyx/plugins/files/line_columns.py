"""The formats of one record a line as columns.

The records are those of `line_records`, at the same positions: lines that the columns do not hold
are decoded there, and only those.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onyx.flow.columns.record_batch import Columns
from onyx.flow.mixed import Read, mixed
from onyx.flow.segment import Segment
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
