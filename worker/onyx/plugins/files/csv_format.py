"""CSV: fields by RFC 4180, that is with quotes in which delimiters, quotes and newlines may stand,
as segments or as columns.

Measured on 20 columns (ns a record, blocks of 64 KiB, segments as dicts): splitting by string
methods 1,400 to 1,900, the csv module 2,400, pyarrow.csv and back to Python 2,900, csv.DictReader
3,900. So a block without any quote is split, one with quotes goes through the csv module; for the
same bytes both give the same.

Columns have the same records at the same positions. pyarrow splits a block without quotes into
columns of text, the csv module one with quotes. Then whole columns are converted. What a cell is
follows the rules for dicts: where pyarrow takes what Python refuses (`0x10`), or the reverse, the
cells of the column are converted one by one. Of a block with bad records these alone become dicts:
records with another number of fields are taken out first, then those with a cell that its column
does not hold.

A type is that of the task's schema, else that of the option `types`. A field that `types` cannot
convert is a bad record; one that the schema does not hold is left to the engine, as text. With a
schema only its columns are read.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.base.on_demand import ModuleOnDemand
from onyx.errors import UserError
from onyx.flow.batch import Indices, Read, mixed
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns, dicts_of
from onyx.flow.columns.values import MISMATCH, cast_values, to_array
from onyx.flow.segment import Segment
from onyx.plugins.files.byte_sources import ByteSource
from onyx.plugins.files.lines import NEWLINE
from onyx.plugins.records import BOM, BadRecords, whole_lines

pcsv = ModuleOnDemand("pyarrow.csv")
"""On demand: a file of JSON or CSV whose rows are dicts needs none of Arrow's readers, which take a
third of the time that a worker takes from its fork to its first segment."""
Convert = Callable[[str], Any]
_INFINITE = (float("inf"), -float("inf"))
HEADER_BYTES = 8_192
"""Read at a time while looking for the end of the header."""
_SENTINEL = "\x00end of block\x00"
"""Fed after a block: it comes out as a row of its own unless a quote is still open."""
_TRUTHS = ["false", "0", "true", "1"]
WRONG = (ValueError, ArithmeticError, *MISMATCH)
OPTION_TYPES: Mapping[str, pa.DataType] = {
    "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string(),
}  # fmt: skip
"""What the option `types` names."""
_NUMBER = r"^([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)?$"
"""The form of a cell that pyarrow mostly takes as a number, as Python does."""
CELLS_MAX = 16
"""While misfits are looked for, so many cells are converted one by one at most."""
_ODD = (b'"', b"\0")
Row = tuple[list[str] | None, bytes]
"""The fields of a record, None if a quote is never closed, and its bytes."""


def _integer(text: str) -> int | None:
    if "_" in text:
        raise ValueError(f"invalid int: {text!r}")
    number = int(text) if text else None
    if number is not None and not -(2**63) <= number < 2**64:
        raise ValueError(f"invalid int: {text!r} is beyond 64 bits")
    return number


def _float(text: str) -> float | None:
    if "_" in text:
        raise ValueError(f"invalid float: {text!r}")
    number = float(text) if text else None
    if number in _INFINITE and "inf" not in text.lower():
        raise ValueError(f"invalid float: {text!r} is beyond 64 bits")
    return number


def _boolean(text: str) -> bool | None:
    try:
        return {"true": True, "false": False, "1": True, "0": False, "": None}[text.lower()]
    except KeyError:
        raise ValueError(f"invalid bool: {text!r}") from None


CONVERSIONS: Mapping[str, Convert | None] = {
    "int": _integer,
    "float": _float,
    "bool": _boolean,
    "str": None,
}
"""Types of columns. An empty field is None for all but `str`."""


class CsvRecords:
    """Rows as dicts of text, with some columns converted; blank lines are no records."""

    def __init__(
        self, columns: Sequence[str], types: Mapping[str, str], delimiter: str, bad: BadRecords
    ) -> None:
        self._columns = columns
        self._delimiter = delimiter
        self._bad = bad
        self._conversions = [
            (column, convert)
            for column, kind in types.items()
            if (convert := CONVERSIONS[kind]) is not None
        ]

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[list[Segment], int]:
        """A dict for each row, at C speed; a block with a bad row is decoded again row by row."""
        lines = whole_lines(data, at_end)
        try:
            segments = dicts_of(self._columns, rows_of(lines.decode(), self._delimiter))
            for column, convert in self._conversions:
                for segment in segments:
                    segment[column] = convert(segment[column])
        except (ValueError, TypeError, OverflowError):
            return self._one_by_one(lines, first, at_end)
        return segments, len(lines)

    def _one_by_one(self, lines: bytes, first: int, at_end: bool) -> tuple[list[Segment], int]:
        segments: list[Segment] = []
        used = 0
        for row, raw in raw_rows(lines, self._delimiter):
            if row is None and not at_end:
                break
            used += len(raw)
            if row != []:
                position = first + len(segments)
                segments.append(self.one(row, raw.rstrip(b"\r\n"), position))
        return segments, used

    def one(self, row: list[str] | None, raw: bytes, position: int) -> Segment:
        """The segment of one record, or the one in its place if it is bad.

        Args:
            row: its fields; None if a quote is never closed.
            raw: its bytes, without the end of the line.
        """
        if row is None:
            return self._bad.segment(position, "a quote is opened and never closed", raw)
        if len(row) != len(self._columns):
            reason = f"{len(row)} fields, but there are {len(self._columns)} columns"
            return self._bad.segment(position, reason, raw)
        segment: Segment = dict(zip(self._columns, row, strict=True))
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return self._bad.segment(position, str(error), raw)
        for column, convert in self._conversions:
            try:
                segment[column] = convert(segment[column])
            except (ValueError, OverflowError) as error:
                return self._bad.segment(position, f"column {column!r}: {error}", raw)
        return segment


def read_header(source: ByteSource, delimiter: str, bytes_max: int) -> tuple[list[str], int]:
    """The first record of a file and the offset after it; no fields if there is none.

    Raises:
        ValueError: it is not UTF-8, its quotes are not closed, or it takes `bytes_max` bytes.
    """
    data = b""
    while len(data) < bytes_max:
        block = source.read(min(bytes_max, HEADER_BYTES))
        data += block
        offset = len(BOM) if data.startswith(BOM) else 0
        for row, raw in raw_rows(whole_lines(data[offset:], not block), delimiter):
            if row is None:
                break
            offset += len(raw)
            if row:
                raw.decode()
                return row, offset
        if not block:
            if data[offset:]:
                raise ValueError("a quote is opened and never closed")
            return [], offset
    raise ValueError(f"it is longer than {bytes_max} bytes")


def raw_rows(lines: bytes, delimiter: str) -> Iterator[tuple[list[str] | None, bytes]]:
    """Every row with its bytes, blank lines as `[]`. None for a last one whose quote is open."""
    texts = list(io.StringIO(lines.decode("utf-8", "surrogateescape"), newline=""))
    reader = csv.reader(chain(texts, (_SENTINEL,)), delimiter=delimiter)
    start = 0
    for row in reader:
        if start == len(texts):  # the sentinel; within an open quote it may be a whole row too
            return
        end = reader.line_num
        raw = "".join(texts[start:end]).encode("utf-8", "surrogateescape")
        yield (row if end <= len(texts) else None), raw
        start = end


def rows_of(text: str, delimiter: str) -> Iterator[list[str]]:
    """The rows of whole records.

    Raises:
        ValueError: the last one is not whole.
    """
    if '"' not in text:
        plain = text.replace("\r\n", "\n") if "\r" in text else text
        if "\r" not in plain:
            return (line.split(delimiter) for line in plain.split("\n") if line)
    return _quoted_rows(text, delimiter)


def _quoted_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    lines = chain(io.StringIO(text, newline=""), (_SENTINEL,))
    reader, before = csv.reader(lines, delimiter=delimiter), 0
    for row in reader:
        if row == [_SENTINEL] and reader.line_num == before + 1:
            return
        before = reader.line_num
        if row:
            yield row
    raise ValueError("a quote is open at the end of the block")


def converted_of(text: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """The cells as a column, null for those that do not fit, and which these are. Few are, so cells
    that look odd are tried one by one, and otherwise halves are."""
    with contextlib.suppress(*WRONG):
        return converted(text, kind, by_cell=False), []
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        usual = pc.match_substring_regex(text, _NUMBER).to_numpy(zero_copy_only=False)
        odd = np.flatnonzero(~usual)
        with contextlib.suppress(*WRONG):
            held = converted(text.filter(pa.array(usual)), kind, by_cell=False)
            apart, misfits = _by_halves(text.take(pa.array(odd)), kind)
            order = np.argsort(np.concatenate((np.flatnonzero(usual), odd)))
            array = pa.concat_arrays([held, apart]).take(pa.array(order))
            return array, odd[misfits].tolist()
    return _by_halves(text, kind)


def _by_halves(text: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    parts = [pa.array([], kind)]
    misfits: list[int] = []

    def convert(first: int, count: int) -> None:
        try:
            parts.append(converted(text.slice(first, count), kind, count <= CELLS_MAX))
        except WRONG:
            if count > 1:
                convert(first, count // 2)
                convert(first + count // 2, count - count // 2)
                return
            parts.append(pa.nulls(1, kind))
            misfits.append(first)

    if len(text):
        convert(0, len(text))
    return pa.concat_arrays(parts), misfits


def converted(text: pa.Array, kind: pa.DataType, by_cell: bool = True) -> pa.Array:
    """Raises one of `WRONG`: a cell does not fit, or can only be converted by itself."""
    if kinds.is_string(kind):
        return text
    empty = pc.equal(text, "")
    values = (
        pc.if_else(empty, pa.scalar(None, pa.string()), text) if pc.any(empty).as_py() else text
    )
    if kinds.is_boolean(kind):
        found = pc.index_in(pc.utf8_lower(values), pa.array(_TRUTHS))
        if found.null_count != values.null_count:
            raise ValueError("not a bool")
        return pc.greater(found, 1)
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        whole = kinds.is_integer(kind)
        if not _mentions(text, b"xX" if whole else b"("):
            with contextlib.suppress(pa.ArrowInvalid):
                return _numbers(values, kind)
        if not by_cell:
            raise ValueError("some cells are to be looked at one by one")
        cell = CONVERSIONS["int" if whole else "float"]
        assert cell is not None
        return to_array(list(map(cell, text.to_pylist())), kind)
    if kinds.is_decimal(kind):
        return pa.array([_decimal(each) for each in text.to_pylist()], kind)
    return cast_values(values, kind)


def _numbers(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises pa.ArrowInvalid: a cell is no number, or one that the type does not hold."""
    if not kinds.is_floating(kind):
        return values.cast(kind)
    found = values.cast(pa.float64())
    large = pc.and_(
        pc.is_inf(found), pc.invert(pc.match_substring(values, "inf", ignore_case=True))
    )
    if pc.any(large).as_py():
        raise pa.ArrowInvalid("a number is beyond what float64 holds")
    return cast_values(found, kind)


def _mentions(text: pa.Array, some: bytes) -> bool:
    data = text.buffers()[2]
    if data is None or not len(text):
        return False
    ends = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    held = data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    return any(byte in held for byte in some)


def cell_of(name: str, kind: pa.DataType) -> Callable[[str], Any]:
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


class BrokenRows(msgspec.Struct, frozen=True):
    """The records of a block of which some are bad."""

    count: int
    record: Callable[[int], Row]
    sound: Sequence[int] | Indices
    """The rows that have as many fields as there are columns, all of them text."""
    texts: Sequence[pa.Array]
    """The texts of these the wanted columns."""
    used: int
    """Bytes."""


def is_odd(lines: bytes) -> bool:
    """Whether pyarrow may split a block otherwise than the csv module does."""
    odd = any(each in lines for each in _ODD) or lines.startswith(BOM)
    return odd or lines.count(b"\r") != lines.count(b"\r\n")


def is_text(raw: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


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

    def _plain_rows(self, lines: bytes) -> BrokenRows:
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
        return BrokenRows(len(ends), record, np.flatnonzero(sound), texts, used)

    def _odd_rows(self, lines: bytes, at_end: bool) -> BrokenRows:
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
        return BrokenRows(len(records), records.__getitem__, sound, texts, used)

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
