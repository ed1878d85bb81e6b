"""JSON lines as the columns of a schema, which names what is wanted of them.

The schema may name some of the keys, and some of the fields of an object within. The decoder skips
all others, so what is not asked for costs little and cannot be wrong. Where a value is no text and
the schema has a string, it is the JSON of the value as it stands in the line.

A block is decoded twice at most: by a decoder for rows that are as asked for, and if one is not, by
another that keeps the JSON of each value that is to be text.

Rejected: `pyarrow.json`, which takes text for times, and refuses a number where text is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import accumulate, chain
from operator import attrgetter, methodcaller
from typing import Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.types as kinds

from onyx.base.structs import UNREADABLE
from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.plugins.parts.offsets import Rows
from onyx.plugins.records import whole_lines

_WRONG = (*UNREADABLE, OverflowError, *MISMATCH)
_EXPECTED = re.compile(r"Expected `(?P<wanted>.*)`, got `(?P<got>.*)` - at `\$\.(?P<key>.*)`")
_CHECKED = frozenset({pa.string(), pa.bool_(), pa.int64(), pa.int32(), pa.float64()})
_NO_ROW = b"{}"
_text_decoder = msgspec.json.Decoder()


class Misfit(UserError):
    """A row does not fit the schema."""


class JsonLines:
    """A JSON object a line (`records.Records`); blank lines are no rows."""

    def __init__(self, wanted: Rows, schema: pa.Schema) -> None:
        """`wanted`: rows before and behind these are counted, and nothing else."""
        self._wanted = wanted
        self._schema = schema
        self._plain, self._getters = _decoder(schema, as_json=False)
        self._any, _ = _decoder(schema, as_json=True)

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[Columns, int]:
        """The columns of whole lines, and the bytes that they take.

        Raises:
            Misfit: a line is no JSON object, or a value does not fit.
        """
        lines = whole_lines(data, at_end)
        rows = self._only_wanted(rows_of(lines), first)
        try:
            return self._columns(list(map(self._plain.decode, rows)), _CHECKED), len(lines)
        except _WRONG:
            pass
        try:
            return self._columns(list(map(self._any.decode, rows))), len(lines)
        except _WRONG:
            raise self._misfit(rows, first) from None

    def _only_wanted(self, rows: list[bytes], first: int) -> list[bytes]:
        begin = max(0, min(len(rows), self._wanted.first - first))
        last = self._wanted.last
        end = len(rows) if last is None else max(begin, min(len(rows), last - first))
        if (begin, end) == (0, len(rows)):
            return rows
        return [*[_NO_ROW] * begin, *rows[begin:end], *[_NO_ROW] * (len(rows) - end)]

    def _columns(
        self, rows: Sequence[Any], checked: frozenset[pa.DataType] = frozenset()
    ) -> Columns:
        arrays = [
            _column(list(map(get, rows)), field.type, field.name, checked)
            for get, field in zip(self._getters, self._schema, strict=True)
        ]
        return Columns(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _misfit(self, rows: Sequence[bytes], first: int) -> Misfit:
        """What is wrong with the first row that does not fit."""
        for index, row in enumerate(rows):
            try:
                self._columns([self._any.decode(row)])
            except _WRONG as error:
                return misfit(self._wanted.path, first + index, _reason(error))
        return misfit(self._wanted.path, first, "this row and those behind it do not fit together")


class TextLines:
    """Every line as it stands (`records.Records`), blank ones left out."""

    def __init__(self, wanted: Rows, schema: pa.Schema) -> None:
        """`schema`: of one column."""
        self._path = wanted.path
        self._schema = schema

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[Columns, int]:
        """A column of whole lines, and the bytes that they take. Raises Misfit: one is no UTF-8."""
        lines = whole_lines(data, at_end)
        rows = rows_of(lines)
        for index, row in enumerate(rows if not _is_utf8(lines) else ()):
            if not _is_utf8(row):
                raise misfit(self._path, first + index, "not UTF-8")
        texts = pa.array(rows, pa.binary()).cast(pa.string())
        return Columns(pa.RecordBatch.from_arrays([texts], schema=self._schema)), len(lines)


def rows_of(lines: bytes) -> list[bytes]:
    """The lines that are rows."""
    return [line for each in lines.split(b"\n") if (line := each.strip())]


def misfit(path: str, row: int, reason: str) -> Misfit:
    """An error that names a row, counted from 0."""
    return Misfit(
        f"{path}, row {row}: {reason}; give a schema that holds it, "
        'spark.read.schema("...").format("onyx"): STRING holds any value, as JSON'
    )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, _Unfit):
        return str(error)
    found = _EXPECTED.fullmatch(str(error))
    if found is None:
        return f"not a JSON object ({error})"
    wanted = found["wanted"].replace(" | null", "").replace("int | float", "number")
    return f"key {found['key']!r} holds a {found['got']} where the schema wants {wanted}"


def _decoder(
    schema: pa.Schema, as_json: bool
) -> tuple[msgspec.json.Decoder[Any], list[Callable[[Any], Any]]]:
    """A decoder of a row, and for each column its way to the value."""
    names = [f"f{number}" for number in range(len(schema))]
    fields = [
        (name, _or_none(each.type, as_json), None) for name, each in zip(names, schema, strict=True)
    ]
    rename = dict(zip(names, schema.names, strict=True))
    try:
        struct = msgspec.defstruct("object", fields, rename=rename, gc=False)
    except ValueError:  # a key with a quote or a backslash cannot be a field
        row = _python_type(pa.struct(list(schema)), as_json)
        return msgspec.json.Decoder(row), [methodcaller("get", name) for name in schema.names]
    return msgspec.json.Decoder(struct), list(map(attrgetter, names))


def _python_type(kind: pa.DataType, as_json: bool) -> Any:
    """What the decoder makes sure of.

    Args:
        as_json: whether what is to be text is left as JSON, and floats may be integers.
    """
    if kinds.is_struct(kind):
        fields = {each.name: _or_none(each.type, as_json) for each in kind.fields}
        # msgspec passes over names beyond ASCII that Python does not hold as UTF-8 yet. To encode
        # these very strings makes it hold them.
        msgspec.json.encode(list(fields))
        return TypedDict("object", fields, total=False)  # type: ignore[operator]
    if kinds.is_list(kind):
        return list[_or_none(kind.value_type, as_json)]  # type: ignore[misc]
    if kinds.is_map(kind):
        return dict[str, _or_none(kind.item_type, as_json)]  # type: ignore[misc]
    if kinds.is_string(kind):
        return msgspec.Raw if as_json else str
    if kinds.is_integer(kind):
        return int | float if as_json else int
    if kinds.is_floating(kind):
        return int | float
    if kinds.is_boolean(kind):
        return bool
    return Decimal if kinds.is_decimal(kind) else Any


def _or_none(kind: pa.DataType, as_json: bool) -> Any:
    python_type = _python_type(kind, as_json)
    return python_type if python_type in (Any, msgspec.Raw) else python_type | None


class _Unfit(ValueError):
    """A value that its column does not hold; the text names the key."""


def _column(
    values: Sequence[Any], kind: pa.DataType, key: str, checked: frozenset[pa.DataType]
) -> pa.Array:
    """Decoded values as a column of exactly this type.

    Args:
        key: for messages.
        checked: of values of these types the decoder has made sure.

    Raises:
        _Unfit, MISMATCH: the column does not hold them.
    """
    if kind in checked:
        return pa.array(values, kind)
    if kinds.is_struct(kind) and kind.num_fields:
        objects = [each or {} for each in values]
        fields = [
            _column(
                [each.get(field.name) for each in objects],
                field.type,
                f"{key}.{field.name}",
                checked,
            )
            for field in kind.fields
        ]
        none = pa.array([each is None for each in values], pa.bool_())
        return pa.StructArray.from_arrays(fields, fields=list(kind.fields), mask=none)
    if kinds.is_list(kind):
        items = _column(_flat(values), kind.value_type, f"{key}[...]", checked)
        return pa.ListArray.from_arrays(_ends(values), items, type=kind)
    if kinds.is_map(kind):
        objects = [each or {} for each in values]
        keys = _column(_flat(objects), kind.key_type, key, checked)
        items = _column(
            _flat([each.values() for each in objects]), kind.item_type, f"{key}[...]", checked
        )
        return pa.MapArray.from_arrays(_ends(values), keys, items, type=kind)
    if kinds.is_string(kind):
        return pa.array(list(map(_text, values)), kind)
    try:
        return to_array(values, kind)
    except MISMATCH as error:
        found = next((each for each in values if each is not None), None)
        raise _Unfit(
            f"key {key!r} holds a {type(found).__name__} where the column is of type {kind}: "
            f"{error}"
        ) from error


def _flat(values: Sequence[Any]) -> list[Any]:
    return list(chain.from_iterable(each for each in values if each is not None))


def _ends(values: Sequence[Any]) -> pa.Array:
    """Where the elements of each list begin, null for none, and where the last list ends."""
    ends = list(accumulate((len(each or ()) for each in values), initial=0))
    begins = [None if each is None else begin for each, begin in zip(values, ends, strict=False)]
    return pa.array([*begins, ends[-1]], pa.int32())


def _text(value: str | msgspec.Raw | None) -> str | None:
    """Text itself, and the JSON of anything else."""
    if value is None or isinstance(value, str):
        return value
    data = bytes(value).strip()
    if data == b"null":
        return None
    text: str = _text_decoder.decode(data) if data.startswith(b'"') else data.decode()
    return text
