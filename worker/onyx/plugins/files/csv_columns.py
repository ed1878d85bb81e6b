"""CSV as columns.

The records are those of `csv_records`, at the same positions. pyarrow splits a block without quotes
into columns of text, the csv module one with quotes. Then whole columns are converted. What a cell
is follows the rules for dicts: where pyarrow takes what Python refuses (`0x10`), or the reverse,
the cells of the column are converted one by one. Of a block with bad records these alone become
dicts: records with another number of fields are taken out first, then those with a cell that its
column does not hold.

A type is that of the task's schema, else that of the option `types`. A field that `types` cannot
convert is a bad record; one that the schema does not hold is left to the engine, as text. With a
schema only its columns are read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from onyx.flow.columns.record_batch import Columns
from onyx.flow.mixed import Read, mixed
from onyx.flow.segment import Segment
from onyx.plugins.files.csv_cells import OPTION_TYPES, WRONG, cell_of, converted, converted_of
from onyx.plugins.files.csv_records import CsvRecords, raw_rows, rows_of
from onyx.plugins.files.csv_rows import Row, Rows, is_odd, is_text
from onyx.plugins.files.line_records import NEWLINE
from onyx.plugins.parts.arrow import pcsv
from onyx.plugins.records import BadRecords, whole_lines


class CsvColumns:
    """Rows as columns (`records.Records`)."""

    def __init__(
        self,
        names: Sequence[str],
        types: Mapping[str, str],
        delimiter: str,
        bad: BadRecords,
        schema: pa.Schema | None,
    ) -> None:
        """
        Args:
            names: of the columns of the file.
            types: the option.
            schema: of the task.

        Raises:
            UserError: a type of the schema has no form in CSV.
        """
        kinds_given = {} if schema is None else dict(zip(schema.names, schema.types, strict=True))
        self._names = list(names)
        self._wanted = [name for name in names if schema is None or name in kinds_given]
        self._kinds = {
            name: kinds_given.get(name, OPTION_TYPES[types.get(name, "str")])
            for name in self._wanted
        }
        self._of_schema = {name: cell_of(name, kinds_given[name]) for name in kinds_given}
        self._of_schema = {name: self._of_schema[name] for name in names if name in kinds_given}
        self._delimiter = delimiter
        self._bad = bad
        left = {name: kind for name, kind in types.items() if name not in kinds_given}
        self._dicts = CsvRecords(names, left, delimiter, bad)
        self._had_bad = False
        """The last block had bad records, so the next one is looked through at once."""
        self._parse = pcsv.ParseOptions(delimiter=delimiter, quote_char=False)
        self._text = pcsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), include_columns=self._wanted
        )

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[Read, int]:
        """Columns; dicts for bad records, and for those that the schema does not hold."""
        lines = whole_lines(data, at_end)
        if not self._had_bad:
            with contextlib.suppress(*WRONG):
                return self._columns(self._texts(lines)), len(lines)
        split = self._odd_rows(lines, at_end) if is_odd(lines) else self._plain_rows(lines)
        arrays, wrong = list[pa.Array](), set[int]()
        for text, name in zip(split.texts, self._wanted, strict=True):
            array, misfits = converted_of(text, self._kinds[name])
            arrays.append(array)
            wrong.update(misfits)
        good = np.delete(np.arange(len(split.sound)), sorted(wrong))
        columns = Columns(pa.RecordBatch.from_arrays(arrays, names=self._wanted)).take(good)
        held = np.array(split.sound, np.intp)[good]
        left = np.delete(np.arange(split.count), held)
        self._had_bad = len(left) > 0
        segments = [self._dict(split.record(index), first + index) for index in left.tolist()]
        return mixed([(held, columns), (left, segments)]), split.used

    def _texts(self, lines: bytes) -> list[pa.Array]:
        """The wanted columns as text. Raises one of `WRONG`: a record is bad or not whole."""
        if is_odd(lines):
            return self._columns_of(rows_of(lines.decode(), self._delimiter))
        read = pcsv.ReadOptions(
            column_names=self._names, use_threads=False, block_size=len(lines) + 1
        )
        table = pcsv.read_csv(pa.BufferReader(lines), read, self._parse, self._text)
        return [table.column(name).combine_chunks() for name in self._wanted]

    def _columns_of(self, rows: Iterable[Sequence[str]]) -> list[pa.Array]:
        cells = list(zip(*rows, strict=True))
        if len(cells) != len(self._names):
            raise ValueError("another number of fields")
        found = dict(zip(self._names, cells, strict=True))
        return [pa.array(found[name], pa.string()) for name in self._wanted]

    def _plain_rows(self, lines: bytes) -> Rows:
        """The rows of a block in which a record is a line."""
        used, lines = len(lines), lines.replace(b"\r\n", b"\n")
        data, delimiter = np.frombuffer(lines, np.uint8), self._delimiter.encode()
        ends = np.append(np.flatnonzero(data == NEWLINE), len(lines))
        starts = np.append(0, ends[:-1] + 1)
        starts, ends = starts[starts < ends], ends[starts < ends]
        if len(delimiter) == 1:
            offsets = np.flatnonzero(data == delimiter[0])
        else:
            found = re.finditer(re.escape(delimiter), lines)
            offsets = np.array([each.start() for each in found], np.intp)
        counts = np.searchsorted(offsets, ends) - np.searchsorted(offsets, starts)
        sound = counts == len(self._names) - 1
        if not is_text(lines):
            sound &= [is_text(lines[a:b]) for a, b in zip(starts, ends, strict=True)]
        runs = np.flatnonzero(np.diff(sound, prepend=False, append=False)).reshape(-1, 2).tolist()
        text = b"\n".join([lines[starts[first] : ends[last - 1]] for first, last in runs])

        def record(index: int) -> Row:
            line = lines[starts[index] : ends[index]]
            return line.decode("utf-8", "replace").split(self._delimiter), line

        texts = self._texts(text) if text else self._nothing()
        return Rows(len(ends), record, np.flatnonzero(sound), texts, used)

    def _odd_rows(self, lines: bytes, at_end: bool) -> Rows:
        """The rows of a block that the csv module splits."""
        records: list[Row] = []
        used = 0
        for row, raw in raw_rows(lines, self._delimiter):
            if row is None and not at_end:
                break
            used += len(raw)
            if row != []:
                records.append((row, raw.rstrip(b"\r\n")))
        sound = [
            n
            for n, (row, raw) in enumerate(records)
            if row is not None and len(row) == len(self._names) and is_text(raw)
        ]
        rows = [row for row, _ in map(records.__getitem__, sound) if row is not None]
        texts = self._columns_of(rows) if rows else self._nothing()
        return Rows(len(records), records.__getitem__, sound, texts, used)

    def _nothing(self) -> list[pa.Array]:
        return [pa.array([], pa.string()) for _ in self._wanted]

    def _dict(self, record: Row, position: int) -> Segment:
        """A record that the columns do not hold."""
        kept = self._bad.kept
        segment = self._dicts.one(*record, position)
        return self._fitted(segment) if self._of_schema and self._bad.kept == kept else segment

    def _columns(self, texts: list[pa.Array]) -> Columns:
        arrays = [
            converted(text, self._kinds[name])
            for name, text in zip(self._wanted, texts, strict=True)
        ]
        return Columns(pa.RecordBatch.from_arrays(arrays, names=self._wanted))

    def _fitted(self, segment: Segment) -> Segment:
        """A row as the schema has it, as far as it fits."""
        fitted = {name: segment[name] for name in self._wanted}
        for name, cell in self._of_schema.items():
            with contextlib.suppress(ValueError, ArithmeticError):
                fitted[name] = cell(fitted[name])
        return fitted
