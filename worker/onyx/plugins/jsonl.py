"""Segments as JSON lines: one call of the encoder for a batch, and errors that name the key.

JSON has neither NaN nor infinities, and the encoder writes null for them. So only a batch whose
encoding contains a null is searched for floats that are not finite. They are refused unless the job
says what to write.

Columns are encoded by the same encoder, so the text is the same: lists of the values become objects
of a `msgspec.Struct` with the keys as fields, all in C, for a quarter of what dicts cost. Joining
columns of text with Arrow was rejected: no faster, and floats, escapes and nested values would have
forms of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.types as kinds

from onyx.base.on_demand import ModuleOnDemand
from onyx.codec.kinds import levels
from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.flow.columns.values import python_values
from onyx.flow.segment import Segment
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext

T = TypeVar("T", bytes, list[bytes])
_encoder = msgspec.json.Encoder()


Nan = Literal["error", "null", "text"]
"""What is written for NaN and the infinities."""
_ROWS = 8_192
"""Rows of columns that are objects at a time, to bound memory."""
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)


pc = ModuleOnDemand("pyarrow.compute")
_TEXTS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class JsonLines:
    """The encoder of one output task."""

    def __init__(self, context: PluginContext, nan: Nan = "error") -> None:
        """`nan`: `error` refuses what is not finite, `null` and `text` (`"NaN"`, `"Infinity"`,
        `"-Infinity"`) write that."""
        self._context = context
        self._nan = nan

    def encode(self, segments: Sequence[Segment]) -> bytes:
        """A line for every segment, each ended by a newline.

        Raises:
            UserError: a value has no JSON form; its key is named.
        """
        return self._encoded(_encoder.encode_lines, segments)

    def encode_each(self, segments: Sequence[Segment]) -> list[bytes]:
        """The lines, each without a newline."""
        return self._encoded(_encode_each, segments)

    def encode_columns(self, columns: Columns) -> Iterator[bytes]:
        """The lines of `encode` for the same segments, in pieces. Raises like it."""
        return map(_encoder.encode_lines, self._objects(columns))

    def encode_each_of(self, columns: Columns) -> list[bytes]:
        """The lines of columns, each without a newline."""
        return [each for objects in self._objects(columns) for each in _encode_each(objects)]

    def _objects(self, columns: Columns) -> Iterator[list[Any]]:
        """What the encoder takes, some rows at a time."""
        names = tuple(columns.record_batch.schema.names)
        make = _object_type(names)
        for first in range(0, len(columns), _ROWS):
            rows = columns.slice(first, first + _ROWS)
            if make is None:
                yield to_dicts(rows)
            else:
                values = map(self._values, names, rows.record_batch.columns)
                yield list(map(make, *values))

    def _values(self, key: str, column: pa.Array) -> list[Any]:
        """What the encoder writes for a column."""
        kind = column.type
        try:
            values = python_values(column.cast(pa.string()) if kinds.is_decimal(kind) else column)
        except _WRONG as error:
            raise self._no_json(key, kind, error) from error
        if self._nan == "null" or not is_odd(column, values):
            return values
        if self._nan == "error":
            raise self._not_finite(key)
        return [with_texts(each) for each in values]

    def _encoded(self, encode: Callable[[Sequence[Segment]], T], segments: Sequence[Segment]) -> T:
        try:
            encoded = encode(segments)
            if self._nan == "null" or not _has_null(encoded) or not any_odd(segments):
                return encoded
            if self._nan == "error":
                odd = (key for each in segments for key in each if any_odd([each[key]]))
                raise self._not_finite(next(odd))
            return encode([with_texts(each) for each in segments])
        except _WRONG as error:
            raise self._explained(segments, error) from error

    def _not_finite(self, key: str) -> UserError:
        return task_error(
            self._context,
            f"key {key!r} holds NaN or an infinity, which JSON lacks: set option nan to null or "
            "text to have that written instead, or replace it in the function before",
        )

    def _explained(self, segments: Sequence[Segment], error: Exception) -> UserError:
        for segment in segments:
            for key, value in segment.items():
                try:
                    _encoder.encode({key: value})
                except _WRONG as refused:
                    return self._no_json(key, type(value).__name__, refused)
        return task_error(self._context, f"a batch cannot be written as JSON: {error}")

    def _no_json(self, key: str, kind: object, error: Exception) -> UserError:
        return task_error(
            self._context,
            f"key {key!r} holds a {kind} that JSON cannot ({error}); convert it in the function "
            "before",
        )


@lru_cache(maxsize=256)
def _object_type(names: tuple[str, ...]) -> type[msgspec.Struct] | None:
    """A type of objects that are encoded with these keys; None if there is no such type: of no keys
    or of keys that have to be escaped."""
    fields = {f"field{number}": name for number, name in enumerate(names)}
    try:
        return msgspec.defstruct("Object", list(fields), rename=fields, gc=False) if names else None
    except ValueError:
        return None


def _encode_each(segments: Sequence[Segment]) -> list[bytes]:
    return list(map(_encoder.encode, segments))


def _has_null(encoded: bytes | list[bytes]) -> bool:
    if isinstance(encoded, bytes):
        return b"null" in encoded
    return any(b"null" in each for each in encoded)


def is_odd(column: pa.Array, values: list[Any]) -> bool:
    """Whether a float in it is not finite."""
    kind = column.type
    if kinds.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is False
    return kinds.is_nested(kind) and any_odd(values)


def any_odd(values: Sequence[Any]) -> bool:
    """Whether a float in them is not finite."""
    return any(
        not math.isfinite(each)
        for level in levels(values)
        if float in level.kinds
        for each in level.values
        if type(each) is float
    )


def with_texts(value: Any) -> Any:
    """The value with the names of such floats in their place."""
    if type(value) is float:
        return value if math.isfinite(value) else _TEXTS[str(value)]
    if isinstance(value, dict):
        return {key: with_texts(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_texts(each) for each in value]
    return value
