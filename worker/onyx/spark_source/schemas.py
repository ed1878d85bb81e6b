"""The schema of an output's parts: what they have, in types that Spark has.

A column gets the type that holds all of its values, of JSON and of Parquet together. Where there is
none (a number in one row, text
in another), it is text: of a value that is no text, the JSON. So every row can be read, whatever
jobs have put there; dead letters hold segments of any form.

Rejected: the type of most values, which makes the other rows errors. Also `pyarrow.unify_schemas`
alone, which refuses what differs, and makes a float of an integer that no float is equal to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from onyx.base.structs import UNREADABLE
from onyx.errors import OnyxError, UserError
from onyx.flow.columns.types import usual_schema
from onyx.plugins.files.byte_sources import named_errors
from onyx.plugins.files.spark_footer import spark_types
from onyx.plugins.parts.offsets import Part, Rows
from onyx.spark_source.lines import misfit
from onyx.spark_source.rows import TEXT, batches
from onyx.storage.files import InputFiles

PARTS_MAX = 1_000
"""Parts that are looked at for their columns. With more, the schema has to be given."""
LINES_ROWS = 100_000
"""Rows of JSON lines that are looked at, of all parts together."""
LINES_ROWS_LEAST = 1_024
"""The rows of each part."""
FIELDS_MAX = 1_000
"""The fields of an object. One that has more is a map by its use, and read as text."""
DEPTH_MAX = 32
"""Levels of objects and lists; what is deeper is read as text."""
_GIVE = 'give the schema, spark.read.schema("...").format("onyx")'
_WRONG = (*UNREADABLE, OverflowError)
_decoder = msgspec.json.Decoder(dict[str, Any])


def found_in(parts: Sequence[Part], name: str) -> pa.Schema:
    """The columns of all parts. Where values of a column differ in type, it is of text.

    Raises:
        UserError: there are none or too many, a part cannot be read, or it has too many columns.
    """
    if not parts:
        raise UserError(f"{name}: nothing is published yet, so the columns are not known; {_GIVE}")
    if len(parts) > PARTS_MAX:
        raise UserError(f"{name}: {len(parts):,} parts are too many to look at each; {_GIVE}")
    rows, shape = max(LINES_ROWS_LEAST, LINES_ROWS // len(parts)), Shape()
    for part in parts:
        if part.path.endswith(".parquet"):
            _add_parquet(shape, part.path)
        else:
            _add_lines(shape, Rows(part.path, 0, rows))
    schema = shape.schema()
    if len(schema) > FIELDS_MAX:
        raise UserError(
            f"{name}: rows have {len(schema):,} columns together, more than {FIELDS_MAX:,}; "
            f'{_GIVE}, or read them as text, option("as", "text")'
        )
    return schema


def _add_lines(shape: Shape, rows: Rows) -> None:
    position = 0
    for batch in batches(rows, TEXT, text=True):
        lines = batch.column(0).to_pylist()
        try:
            shape.add(list(map(_decoder.decode, lines)))
        except _WRONG:
            raise _first_wrong(rows.path, lines, position) from None
        position += len(lines)


def _first_wrong(path: str, lines: Sequence[str], position: int) -> UserError:
    for index, line in enumerate(lines):
        try:
            _decoder.decode(line)
        except _WRONG as error:
            return UserError(
                f'{path}, row {position + index}: not a JSON object ({error}); option("as", '
                '"text") reads any lines'
            )
    return misfit(path, position, "this row and those behind it do not fit together")


def _add_parquet(shape: Shape, path: str) -> None:
    try:
        with InputFiles().open(path, ahead=False) as file, named_errors(path):
            found = pq.read_schema(file)
            of_spark = spark_types(found)
            found = found.remove_metadata() if of_spark is None else of_spark.schema(found)
            usual = usual_schema(found) or found  # as `rows` gives them
    except OnyxError as error:
        raise UserError(f"{path}: {error}") from error
    shape.add_type(pa.struct(list(usual)))


_INT64, _UINT64, _FLOAT64 = 2**63, 2**64, 2**53
_TEXT = pa.string()


class Shape:
    """What was found at one path: a column, a field of an object, the elements of a list."""

    __slots__ = ("_fields", "_is_object", "_items", "_kinds", "_least", "_most", "_types")

    def __init__(self) -> None:
        self._kinds: set[type] = set()
        """The kinds of JSON: bool, int, float, str."""
        self._types: set[pa.DataType] = set()
        """The types of Parquet, without structs and lists."""
        self._least = self._most = 0
        """The least of integers."""
        self._fields: dict[str, Shape] = {}
        self._is_object = False
        self._items: Shape | None = None

    def add(self, values: Sequence[Any]) -> None:
        """Add values as a JSON decoder gives them."""
        found = set(map(type, values))
        if int in found:
            whole = [each for each in values if type(each) is int]
            self._least, self._most = min(self._least, *whole), max(self._most, *whole)
        if dict in found:
            self._add_objects([each for each in values if type(each) is dict])
        if list in found:
            self._items = self._items or Shape()
            self._items.add(list(chain.from_iterable(e for e in values if type(e) is list)))
        self._kinds |= found - {dict, list, type(None)}

    def add_type(self, kind: pa.DataType) -> None:
        """Add the type of a column."""
        if kinds.is_struct(kind):
            self._is_object = True
            for field in kind.fields:
                self._field(field.name).add_type(field.type)
        elif kinds.is_list(kind):
            self._items = self._items or Shape()
            self._items.add_type(kind.value_type)
        elif not kinds.is_null(kind):
            self._types.add(kind)

    def schema(self) -> pa.Schema:
        """The schema: it is used as the shape of rows."""
        return pa.schema([(name, each.arrow(1)) for name, each in self._fields.items()])

    def arrow(self, depth: int = 0) -> pa.DataType:
        """The type that holds all that was found; null if nothing was."""
        found = list(self._of_values()) + list(self._types)
        if self._is_object:
            found.append(self._struct(depth))
        if self._items is not None:
            found.append(pa.list_(self._items.arrow(depth + 1)) if depth < DEPTH_MAX else _TEXT)
        return reduce(_both, found) if found else pa.null()

    def _of_values(self) -> Iterable[pa.DataType]:
        for kind in self._kinds - {int, float}:
            yield pa.bool_() if kind is bool else _TEXT
        whole = self._least, self._most
        if float in self._kinds:
            yield pa.float64() if whole[0] >= -_FLOAT64 and whole[1] <= _FLOAT64 else _TEXT
        elif int in self._kinds:
            if whole[0] >= -_INT64 and whole[1] < _INT64:
                yield pa.int64()
            else:
                yield pa.uint64() if whole[0] >= 0 and whole[1] < _UINT64 else _TEXT

    def _struct(self, depth: int) -> pa.DataType:
        """Spark takes names for equal that differ in case only, and writes no empty structs."""
        names = {name.lower() for name in self._fields}
        usable = 0 < len(self._fields) == len(names) <= FIELDS_MAX
        if not usable or depth >= DEPTH_MAX:
            return _TEXT
        fields = ((name, each.arrow(depth + 1)) for name, each in self._fields.items())
        return pa.struct(list(fields))

    def _add_objects(self, objects: Sequence[dict[str, Any]]) -> None:
        self._is_object = True
        values: dict[str, list[Any]] = {}
        for each in objects:
            for name, value in each.items():
                values.setdefault(name, []).append(value)
        for name, of_name in values.items():
            self._field(name).add(of_name)

    def _field(self, name: str) -> Shape:
        if name not in self._fields:
            self._fields[name] = Shape()
        return self._fields[name]


def _both(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """The type that holds both."""
    if first.equals(second):
        return first
    if not (_is_number(first) and _is_number(second)):
        return _TEXT
    try:
        of_each = [pa.schema([("", first)]), pa.schema([("", second)])]
        return pa.unify_schemas(of_each, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return _TEXT


def _is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))
