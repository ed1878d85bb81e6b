"""JSON objects as columns: a decoder that is typed by the columns that are known.

msgspec decodes each object into a struct, whose fields become the columns. The structs need no
dict, and the decoder itself notices a record of other keys or types. Such records alone are decoded
as dicts, and where that makes the known types wider these hold them: an integer column that meets a
fraction is of floats from then on. Records that no wider type holds stay dicts, unless most of a
block are such: then what came before is not the rule any more, and types are learned anew.

CPU seconds a million records of three keys, in one run: dicts alone 0.52, this 0.33, pyarrow.json
with a schema 0.44. That one also takes text for times, and other parsers than that of the dicts
would call other records bad. polars is faster by a tenth, but another dependency of 40 MB.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.base.structs import UNREADABLE
from onyx.errors import UserError
from onyx.flow.batch import Piece, Read, mixed
from onyx.flow.columns.record_batch import Columns, from_dicts, keys_of
from onyx.flow.columns.types import usual_type
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.flow.segment import Segment

KEYS_MAX = 4_096
"""Columns that are remembered. Where records have ever new keys, only those of a block are."""
Decode = Callable[[int], tuple[Segment, bool]]
_WRONG = (*UNREADABLE, OverflowError, *MISMATCH)


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
        """Columns of values, one object each."""
        typed = self._typed
        if typed is None:
            return None
        try:
            return typed.columns(list(map(typed.decoder.decode, values)))
        except _WRONG:
            return None

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The types of the columns, as far as they were learned."""
        return {} if self._fixed else self._types

    def of_some(self, values: Sequence[bytes], decode: Decode) -> Read:
        """The objects of values of which the known columns do not hold all: columns of those that
        they hold, or that wider ones do, and the others as dicts.

        Args:
            decode: makes a dict of a value, by its index, and says whether it is an object at all.
        """
        columns, left = self._held(values)
        dicts, objects = dict[int, Segment](), list[int]()
        for index in left:
            dicts[index], is_object = decode(index)
            if is_object:
                objects.append(index)
        if objects and self._learn([dicts[index] for index in objects], len(values)):
            columns, left = self._held(values)
            dicts.update((index, decode(index)[0]) for index in left if index not in dicts)
        held = np.delete(np.arange(len(values)), left), columns
        if not objects or not (self._fixed or self._typed is None):
            return mixed([held, _chosen(dicts, left)])
        fitting = self._fitting(dicts, objects)
        others = sorted(set(left).difference(fitting[0].tolist()))
        return mixed([held, fitting, _chosen(dicts, others)])

    def of_dicts(self, segments: list[Segment]) -> Read:
        """Columns of segments that are dicts already, and those that no columns hold."""
        self._learn(segments, len(segments))
        dicts = dict(enumerate(segments))
        held = self._fitting(dicts, range(len(segments)))
        return mixed([held, _chosen(dicts, sorted(set(dicts).difference(held[0].tolist())))])

    def _held(self, values: Sequence[bytes]) -> tuple[Columns, list[int]]:
        """Columns of what the known types hold, and the indices of the others."""
        if self._typed is None:
            return Columns(pa.record_batch({})), list(range(len(values)))
        return self._typed.of_some(values)

    def _fitting(self, dicts: Mapping[int, Segment], objects: Sequence[int]) -> Piece:
        """The objects of these objects that the schema holds although the decoder refuses them."""
        decimals = [key for key, kind in self._types.items() if kinds.is_decimal(kind)]
        segments = [
            each | {key: _decimal(each[key]) for key in decimals if key in each}
            for each in map(dicts.__getitem__, objects)
        ]
        columns, kept, _ = from_dicts(segments, pa.schema(list(self._types.items())))
        indices = np.array(objects, np.intp)
        return (indices if kept is None else indices[kept]), columns

    def _learn(self, segments: Sequence[Segment], of: int) -> bool:
        """Whether types were learned from objects that the known columns do not hold.

        Args:
            of: how many objects there are in all.
        """
        if self._fixed:
            return False
        found, are_most = _types_of(segments), 2 * len(segments) > of
        types = dict(self._types)
        for name, kind in found.items():
            wider = _wider(types.get(name), kind)
            if wider is None:  # a struct without fields is a type, and false
                wider = kind if are_most else types[name]
            types[name] = wider
        if len(types) > KEYS_MAX:
            types = found if are_most else dict(self._types)
        if not types or types == self._types:
            return False
        self._know(types)
        return self.known

    def _know(self, types: dict[str, pa.DataType]) -> None:
        self._types = types
        try:
            self._typed = _Typed(types) if types else None
        except ValueError:
            self._typed = None  # a key with a quote or a backslash cannot be a field


def _chosen(dicts: Mapping[int, Segment], indices: Sequence[int]) -> Piece:
    return np.array(indices, np.intp), [dicts[index] for index in indices]


def _types_of(segments: Sequence[Segment]) -> dict[str, pa.DataType]:
    """For each key a type that holds its values, or most of them."""
    types: dict[str, pa.DataType] = {}
    for key in keys_of(segments):
        values = [each[key] for each in segments if each.get(key) is not None]
        groups: dict[type, list[Any]] = {}
        for value in values:
            groups.setdefault(float if type(value) is int else type(value), []).append(value)
        most = max(groups.values(), key=len, default=values)
        with contextlib.suppress(UserError, *MISMATCH):
            types[key] = _type_of(most)
    return types


def _type_of(values: Sequence[Any]) -> pa.DataType:
    try:
        return usual_type(to_array(values).type)
    except MISMATCH:
        if type(values[0]) not in (int, float):
            raise
        # Some integers are too large to stand beside the others.
        whole = sum(type(value) is int for value in values)
        return pa.int64() if 2 * whole > len(values) else pa.float64()


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

    def of_some(self, values: Sequence[bytes]) -> tuple[Columns, list[int]]:
        """Columns of the values that they hold, and the indices of the others."""
        rows, left = list[Any](), list[int]()
        remaining = map(self.decoder.decode, values)
        while len(rows) + len(left) < len(values):
            try:
                rows.extend(remaining)  # keeps what came before an exception
            except _WRONG:
                left.append(len(rows) + len(left))
        try:
            return self.columns(rows), left
        except MISMATCH:
            indices = np.delete(np.arange(len(values)), left)
        wrong = sorted({
            row for field, convert in self._ways
            for row in _misfits(list(map(field, rows)), convert, 0)
        })  # fmt: skip
        kept = np.delete(np.arange(len(rows)), wrong)
        try:
            columns = self.columns([rows[row] for row in kept.tolist()])
        except MISMATCH:  # each value is of the type, and together they are not
            return self.columns([]), list(range(len(values)))
        return columns, sorted([*left, *indices[wrong].tolist()])

    def columns(self, rows: Sequence[Any]) -> Columns:
        """Raises MISMATCH: a column does not hold a value."""
        arrays = [convert(list(map(field, rows))) for field, convert in self._ways]
        return Columns(pa.RecordBatch.from_arrays(arrays, names=self._names))


def _misfits(
    values: Sequence[Any], convert: Callable[[Sequence[Any]], pa.Array], first: int
) -> list[int]:
    """The values that a column does not hold, by halves: few are."""
    try:
        convert(values)
    except MISMATCH:
        if len(values) == 1:
            return [first]
        half = len(values) // 2
        left = _misfits(values[:half], convert, first)
        return left + _misfits(values[half:], convert, first + half)
    return []


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
    """The number as the typed decoder makes it, as far as a dict still has all digits."""
    if type(value) not in (float, str):
        return value
    try:
        return Decimal(value if type(value) is str else repr(value))
    except InvalidOperation:
        return value


def _wider(known: pa.DataType | None, found: pa.DataType) -> pa.DataType | None:
    """The type that holds both; None if there is none."""
    if known is None or known.equals(found):
        return found
    try:
        both = pa.unify_schemas(
            [pa.schema([("", known)]), pa.schema([("", found)])], promote_options="permissive"
        )
    except MISMATCH:
        return None
    return usual_type(both.field(0).type)
