"""JSON objects as columns: a decoder that is typed by the columns that are known.

msgspec decodes each object into a struct, whose fields become the columns. The structs need no
dict, and the decoder itself notices a record of other keys or types. Then the block is decoded as
dicts, and the known types become wider. So types change when they have to, and not from block to
block: an integer column that meets a fraction is of floats from then on.

CPU seconds a million records of three keys, in one run: dicts alone 0.52, this 0.33, pyarrow.json
with a schema 0.44. That one also takes text for times, and other parsers than that of the dicts
would call other records bad. polars is faster by a tenth, but another dependency of 40 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.batch import Segments
from onyx.flow.column_types import usual_type
from onyx.flow.column_values import MISMATCH, to_array
from onyx.flow.columns import Columns, from_dicts
from onyx.flow.segment import Segment

KEYS_MAX = 4_096
"""Columns that are remembered. Where records have ever new keys, only those of a block are."""
_WRONG = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, *MISMATCH)


class JsonColumns:
    """Decodes for one input task and remembers the types of the keys, in all of its partitions."""

    def __init__(self, schema: pa.Schema | None) -> None:
        """`schema`: of usual types, which never change; None: they are learned."""
        self._fixed = schema is not None
        self._types: dict[str, pa.DataType] = {}
        self._typed: _Typed | None = None
        if schema is not None:
            self._know(dict(zip(schema.names, schema.types, strict=True)))

    @property
    def known(self) -> bool:
        """Whether there are columns by which objects can be decoded."""
        return self._typed is not None

    def of_lines(self, lines: bytes, count: int) -> Columns | None:
        """The objects of so many lines; None if they are others than the known columns hold."""
        typed = self._typed
        if typed is None:
            return None
        try:
            rows = typed.decoder.decode_lines(lines)
            return typed.columns(rows) if len(rows) == count else None
        except _WRONG:
            return None

    def of_values(self, values: Sequence[bytes]) -> Columns | None:
        """The same of values, one object each."""
        typed = self._typed
        if typed is None:
            return None
        try:
            return typed.columns(list(map(typed.decoder.decode, values)))
        except _WRONG:
            return None

    def of_dicts(self, segments: list[Segment]) -> Segments:
        """Objects that were decoded as dicts because the known columns do not hold them. Where no
        columns do, or not those of the schema, they are left to the engine, as they are."""
        try:
            if self._fixed:
                return self._fitting(segments)
            columns, _, failures = from_dicts(segments)
            return segments if failures else self._widened(columns)
        except (UserError, *_WRONG):
            return segments

    def _fitting(self, segments: list[Segment]) -> Segments:
        decimals = [key for key, kind in self._types.items() if kinds.is_decimal(kind)]
        if decimals:
            segments = [
                each | {key: _decimal(each[key]) for key in decimals if key in each}
                for each in segments
            ]
        columns, _, failures = from_dicts(segments, pa.schema(list(self._types.items())))
        return segments if failures else columns

    def _widened(self, columns: Columns) -> Columns:
        """The columns in the types that hold them and what came before."""
        batch = columns.record_batch
        types = dict(self._types)
        for name, found in zip(batch.schema.names, batch.schema.types, strict=True):
            types[name] = _wider(types.get(name), found)
        if len(types) > KEYS_MAX:
            types = dict(zip(batch.schema.names, batch.schema.types, strict=True))
        arrays = [
            columns.column(name).cast(kind) if columns.has(name) else pa.nulls(len(columns), kind)
            for name, kind in types.items()
        ]
        if types != self._types:
            self._know(types)
        if not arrays:
            return columns
        return Columns(pa.RecordBatch.from_arrays(arrays, names=list(types)))

    def _know(self, types: dict[str, pa.DataType]) -> None:
        self._types = types
        try:
            self._typed = _Typed(types) if types else None
        except ValueError:
            self._typed = None  # a key with a quote or a backslash cannot be a field


class _Typed:
    """The struct of some columns, and its way to them."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self._names = list(types)
        fields = [f"f{number}" for number in range(len(types))]
        python_types = [_python_type(each) | None for each in types.values()]
        struct = msgspec.defstruct(
            "Row",
            [(field, kind, None) for field, kind in zip(fields, python_types, strict=True)],
            rename=dict(zip(fields, types, strict=True)),
            forbid_unknown_fields=True,
            gc=False,
        )
        self.decoder = msgspec.json.Decoder(struct)
        ways = map(_converter, types.values())
        self._ways = list(zip(map(attrgetter, fields), ways, strict=True))

    def columns(self, rows: Sequence[Any]) -> Columns:
        """Raises MISMATCH: a column does not hold a value."""
        arrays = [convert(list(map(field, rows))) for field, convert in self._ways]
        return Columns(pa.RecordBatch.from_arrays(arrays, names=self._names))


def _python_type(kind: pa.DataType) -> Any:
    """What the decoder makes sure of, so that pyarrow converts nothing in silence."""
    if kinds.is_integer(kind):
        return int
    if kinds.is_float64(kind):
        return int | float  # pyarrow refuses an integer that no float64 is equal to
    if kinds.is_boolean(kind):
        return bool
    if kinds.is_decimal(kind):
        return Decimal  # of a number all digits that the text has, or of text
    return str if kinds.is_string(kind) else Any


def _converter(kind: pa.DataType) -> Callable[[Sequence[Any]], pa.Array]:
    if _python_type(kind) is Any:
        return lambda values: to_array(values, kind)
    return lambda values: pa.array(values, kind)


def _decimal(value: Any) -> Any:
    """As the typed decoder makes it, as far as a dict still has all digits."""
    if type(value) not in (float, str):
        return value
    try:
        return Decimal(value if type(value) is str else repr(value))
    except InvalidOperation:
        return value


def _wider(known: pa.DataType | None, found: pa.DataType) -> pa.DataType:
    """The type that holds both; if there is none, that of what came last."""
    if known is None or known.equals(found):
        return found
    try:
        both = pa.unify_schemas(
            [pa.schema([("", known)]), pa.schema([("", found)])], promote_options="permissive"
        )
    except MISMATCH:
        return found
    return usual_type(both.field(0).type)
