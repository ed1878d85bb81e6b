"""CSV as columns.

The records are those of `csv_records`, at the same positions. pyarrow splits a block without quotes
into columns of text, the csv module one with quotes. Then whole columns are converted. What a cell
is follows the rules for dicts: where pyarrow takes what Python refuses (`0x10`), or the reverse,
the cells of the column are converted one by one. A block with a bad record is decoded as dicts.

A type is that of the task's schema, else that of the option `types`. A field that `types` cannot
convert is a bad record; one that the schema does not hold is left to the engine, as text. With a
schema only its columns are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.batch import Segments
from onyx.flow.column_values import MISMATCH, cast_values
from onyx.flow.columns import Columns
from onyx.flow.segment import Segment
from onyx.plugins.files.csv_records import CONVERSIONS, CsvRecords, rows_of
from onyx.plugins.records import BOM, BadRecords, whole_lines

_OPTION_TYPES: Mapping[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "str": pa.string(),
}
_TRUTHS = pa.array(["false", "0", "true", "1"])
_WRONG = (ValueError, ArithmeticError, *MISMATCH)
_ODD = (b'"', b"\0")
"""In a block that pyarrow may split otherwise than the csv module does."""


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
            name: kinds_given.get(name, _OPTION_TYPES[types.get(name, "str")])
            for name in self._wanted
        }
        self._of_schema = {name: _cell_of(name, kinds_given[name]) for name in kinds_given}
        self._of_schema = {name: self._of_schema[name] for name in names if name in kinds_given}
        self._delimiter = delimiter
        self._bad = bad
        left = {name: kind for name, kind in types.items() if name not in kinds_given}
        self._dicts = CsvRecords(names, left, delimiter, bad)
        self._parse = pcsv.ParseOptions(delimiter=delimiter, quote_char=False)
        self._text = pcsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), include_columns=self._wanted
        )

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[Segments, int]:
        """Columns; dicts for a block with a bad record, or with one that the schema lacks."""
        lines = whole_lines(data, at_end)
        try:
            return self._columns(self._texts(lines)), len(lines)
        except _WRONG:
            pass
        kept = self._bad.kept
        segments, used = self._dicts.decode(data, first, at_end)
        if self._bad.kept == kept and segments:
            try:
                rows = self._texts(data[:used])
                return self._columns(rows), used
            except _WRONG:
                pass
        if self._of_schema:
            segments = [self._fitted(each) for each in segments]
        return segments, used

    def _texts(self, lines: bytes) -> list[pa.Array]:
        """The wanted columns as text. Raises one of `_WRONG`: a record is bad or not whole."""
        odd = any(each in lines for each in _ODD) or lines.startswith(BOM)
        if odd or lines.count(b"\r") != lines.count(b"\r\n"):
            cells = list(zip(*rows_of(lines.decode(), self._delimiter), strict=True))
            if len(cells) != len(self._names):
                raise ValueError("another number of fields")
            found = dict(zip(self._names, cells, strict=True))
            return [pa.array(found[name], pa.string()) for name in self._wanted]
        read = pcsv.ReadOptions(
            column_names=self._names, use_threads=False, block_size=len(lines) + 1
        )
        table = pcsv.read_csv(pa.BufferReader(lines), read, self._parse, self._text)
        return [table.column(name).combine_chunks() for name in self._wanted]

    def _columns(self, texts: list[pa.Array]) -> Columns:
        arrays = [
            _converted(text, self._kinds[name])
            for name, text in zip(self._wanted, texts, strict=True)
        ]
        return Columns(pa.RecordBatch.from_arrays(arrays, names=self._wanted))

    def _fitted(self, segment: Segment) -> Segment:
        """A row as the schema has it, as far as it fits; a bad record as it is."""
        if "_error" in segment and segment.keys() != set(self._names):
            return segment
        fitted = {name: segment[name] for name in self._wanted}
        for name, cell in self._of_schema.items():
            with contextlib.suppress(ValueError, ArithmeticError):
                fitted[name] = cell(fitted[name])
        return fitted


def _converted(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises one of `_WRONG`: a cell does not fit."""
    if kinds.is_string(kind):
        return text
    empty = pc.equal(text, "")
    values = (
        pc.if_else(empty, pa.scalar(None, pa.string()), text) if pc.any(empty).as_py() else text
    )
    if kinds.is_boolean(kind):
        found = pc.index_in(pc.utf8_lower(values), _TRUTHS)
        if found.null_count != values.null_count:
            raise ValueError("not a bool")
        return pc.greater(found, 1)
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        whole = kinds.is_integer(kind)
        if not _mentions(text, b"xX" if whole else b"("):
            with contextlib.suppress(pa.ArrowInvalid):
                return values.cast(kind)
        cell = CONVERSIONS["int" if whole else "float"]
        assert cell is not None
        return pa.array(map(cell, text.to_pylist()), kind)
    if kinds.is_decimal(kind):
        return pa.array([_decimal(each) for each in text.to_pylist()], kind)
    return cast_values(values, kind)


def _mentions(text: pa.Array, some: bytes) -> bool:
    data = text.buffers()[2]
    held = b"" if data is None else data.to_pybytes()
    return any(byte in held for byte in some)


def _cell_of(name: str, kind: pa.DataType) -> Callable[[str], Any]:
    """What makes of a field a value that the engine may look at.

    Raises:
        UserError: no field is of this type.
    """
    if kinds.is_string(kind):
        return str
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
        names = {"bool": kinds.is_boolean, "int": kinds.is_integer, "float": kinds.is_floating}
        cell = CONVERSIONS[next(each for each, is_kind in names.items() if is_kind(kind))]
        assert cell is not None
        return cell
    if kinds.is_decimal(kind):
        return _decimal
    if kinds.is_timestamp(kind) or kinds.is_date(kind):
        return lambda text: text or None
    raise UserError(
        f"the schema says {kind} for column {name!r}, which has no form in CSV: read it as string "
        "and convert it in a function"
    )


def _decimal(text: str) -> Decimal | None:
    return Decimal(text) if text else None
