"""Keys of joins in one form, so that the same key is found whatever type its column has.

Whole numbers and moments become int64, text and bytes become text. `1`, `1.0` and `Decimal("1.00")`
are one key, as in Python. Numbers that int64 does not hold, which are few, become text with all
digits: 2**63 and more, and fractions. A key that is null, or has a part that is null, equals no
other: as in SQL. NaN equals none either, so a table refuses it as its key.

Keys of another kind can never be equal (`"7"` and `7`). Such a segment fails, rather than find
nothing for ever without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.arrays import Indices, Mask
from onyx.flow.columns.compute import pc
from onyx.flow.columns.values import python_values
from onyx.flow.groups.keys import key_bytes
from onyx.keystate.coded import Groups
from onyx.windows.arrays.key_table import HashedKeys, table_for

NONE = -1
"""In the place of a number: there is none."""
_INT64 = 2.0**63
_INT64_ENDS = (Decimal(-(2**63)), Decimal(2**63 - 1))


def kind_of(column: pa.DataType) -> str:
    """The kind of the keys of a column; only keys of one kind may be equal.

    Raises:
        UserError: values of this type are no keys.
    """
    for kind, types in _KINDS:
        if any(is_of(column) for is_of in types):
            return kind
    raise UserError(f"values of type {column} cannot be keys of a join: use text, numbers or times")


_KINDS = (
    ("null", (kinds.is_null,)),
    ("true or false", (kinds.is_boolean,)),
    ("number", (kinds.is_integer, kinds.is_floating, kinds.is_decimal)),
    ("text", (kinds.is_string, kinds.is_large_string)),
    ("bytes", (kinds.is_binary,)),
    ("date", (kinds.is_date,)),
    ("timestamp", (kinds.is_timestamp,)),
    ("time", (kinds.is_time,)),
    ("duration", (kinds.is_duration,)),
)


def plain(column: pa.Array) -> pa.Array:
    """The values as int64 or text; null: the value equals no other, or is a number that `beyond`
    has.

    Raises:
        UserError: values of this type are no keys.
    """
    kind = kind_of(column.type)
    if kind in ("text", "null"):
        return column
    if kind == "bytes":
        return column.view(pa.string())
    if kind == "number":
        return _whole(column)
    if kind == "timestamp":
        return column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())
    if kind == "date":
        return column.cast(pa.date32()).view(pa.int32()).cast(pa.int64())
    if kind == "true or false":
        return column.cast(pa.int8()).cast(pa.int64())
    return column.view(pa.int64())


def apart(column: pa.Array) -> pa.Array:
    """The values as `plain` gives them, but those of different kinds never equal each other, as
    nobody says here which kind the keys have. Numbers and text stay as they are; before all else is
    a byte that no text has.

    Raises:
        UserError: values of this type are no keys.
    """
    kind = kind_of(column.type)
    if kind == "number":
        others = beyond(column)
        if others is None:
            return plain(column)
        assert not pc.any(pc.and_(others.is_null(), is_key(column))).as_py(), "apart, by the caller"
        return _marked(others, kind)
    found = plain(column)
    if kind in ("text", "null"):
        return found
    return _marked(found if kind == "bytes" else found.cast(pa.string()), kind)


def _marked(values: pa.Array, kind: str) -> pa.Array:
    mark, between = (pa.scalar(each, pa.binary()) for each in (b"\xff" + kind.encode(), b" "))
    marked = pc.binary_join_element_wise(mark, values.view(pa.binary()), between)
    return marked.view(pa.string())


def is_key(column: pa.Array) -> pa.Array:
    """Which values equal others at all."""
    there = column.is_valid()
    return (
        pc.and_(there, pc.invert(pc.is_nan(column)).fill_null(False))
        if kinds.is_floating(column.type)
        else there
    )


def beyond(column: pa.Array) -> pa.Array | None:
    """The numbers that int64 does not hold, as text that equal ones have alike, and null for all
    others; None: there are none."""
    kind = column.type
    if kinds.is_integer(kind) and not kinds.is_uint64(kind):
        return None
    left = pc.and_(is_key(column), plain(column).is_null())
    if not pc.any(left).as_py():
        return None
    encoded = pc.if_else(left, column, None).dictionary_encode()
    texts = [key_bytes(each).decode() for each in python_values(encoded.dictionary)]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _texts(column: pa.Array) -> pa.Array:
    """All numbers as text."""
    found, others = plain(column).cast(pa.string()), beyond(column)
    return found if others is None else pc.coalesce(found, others)


def _whole(column: pa.Array) -> pa.Array:
    """Numbers as int64, and null where that does not hold them."""
    if kinds.is_uint64(column.type):
        fits = pc.less(column, pa.scalar(2**63, pa.uint64()))
        return pc.if_else(fits, column, None).cast(pa.int64())
    if kinds.is_integer(column.type):
        return column.cast(pa.int64())
    if kinds.is_decimal(column.type):
        return _whole_decimals(column)
    values = column.cast(pa.float64())
    numbers = values.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        whole = (np.floor(numbers) == numbers) & (numbers >= -_INT64) & (numbers < _INT64)
    return pc.if_else(pa.array(whole), values, None).cast(pa.int64())


def _whole_decimals(column: pa.Array) -> pa.Array:
    kind = column.type
    if kind.precision <= kind.scale:  # all are between -1 and 1
        zero = pc.equal(column, pa.scalar(Decimal(0), kind))
        return pc.if_else(zero, pa.scalar(0, pa.int64()), None)
    if kind.scale < 0:  # Arrow does not compare those
        column = column.cast(pa.decimal256(min(kind.precision - kind.scale, 76), 0))
    elif kind.scale:
        whole = pc.trunc(column)  # of a floor there may be no room for the last digit
        column = pc.if_else(pc.equal(column, whole), whole, None)
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:  # some are too large
        least, most = (pa.scalar(each, pa.decimal128(19)) for each in _INT64_ENDS)
        within = pc.and_(pc.less_equal(column, most), pc.greater_equal(column, least))
        return pc.if_else(within, column, None).cast(pa.int64())


class KeyNumbers:
    """Numbers of keys, from 0: what a table and a state look up.

    The parts of a key are numbered one by one, and then two numbers at a time together.
    """

    def __init__(self, parts: int) -> None:
        """`parts`: how many values a key has."""
        self._parts = [_Numbers() for _ in range(parts)]
        self._pairs = [_Numbers() for _ in range(parts - 1)]

    def __len__(self) -> int:
        """How many keys there are."""
        return len((self._pairs or self._parts)[-1])

    def add(self, columns: Sequence[pa.Array]) -> Indices:
        """The number of the key of each row, new ones for keys that are new; -1: the key equals no
        other.

        Raises:
            UserError: a part is of another kind than that of keys that are there.
        """
        first, *others = (part.add(each) for part, each in zip(self._parts, columns, strict=True))
        for pair, other in zip(self._pairs, others, strict=True):
            first = pair.add(_paired(first, other))
        return first

    def find(self, columns: Sequence[pa.Array]) -> Indices:
        """The number of the key of each row; -1: there is none.

        Raises:
            UserError: a part is of another kind than that of the keys that are there.
        """
        first, *others = (part.find(each) for part, each in zip(self._parts, columns, strict=True))
        for pair, other in zip(self._pairs, others, strict=True):
            first = pair.find(_paired(first, other))
        return first


class _Numbers:
    """Numbers of single values."""

    def __init__(self) -> None:
        self._table: HashedKeys | None = None
        self._kind = "null"
        self._as_text = False
        """Numbers are text here, because int64 does not hold all of them."""

    def __len__(self) -> int:
        return 0 if self._table is None else len(self._table)

    def add(self, column: pa.Array) -> Indices:
        """The number of each value."""
        self._require(column)
        if self._kind == "null":
            self._kind = kind_of(column.type)
        if self._kind == "number" and not self._as_text:
            self._as_text = beyond(column) is not None
            if self._as_text and self._table is not None:
                self._table = _in_text(self._table)
        values, there = _there(self._plain(column))
        found = np.full(len(column), NONE, np.intp)
        if not len(values):
            return found
        encoded = values.dictionary_encode()
        groups = Groups(np.arange(len(encoded.dictionary)), None, encoded.dictionary)
        if self._table is None:
            table = table_for(groups)
            assert isinstance(table, HashedKeys), "ints and text have hashes"
            self._table = table
        numbers = self._table.add(groups)
        assert numbers is not None, "all are of one kind"
        found[there] = numbers[encoded.indices.to_numpy()]
        return found

    def find(self, column: pa.Array) -> Indices:
        """The number of each value that has one."""
        self._require(column)
        values, there = _there(self._plain(column))
        if self._table is None or not len(values):
            return np.full(len(column), NONE, np.intp)
        numbers = self._table.find(Groups(np.arange(len(values)), None, values))
        if len(values) == len(column):
            return numbers
        found = np.full(len(column), NONE, np.intp)
        found[there] = numbers
        return found

    def _plain(self, column: pa.Array) -> pa.Array:
        is_text = self._as_text and kind_of(column.type) == "number"
        return _texts(column) if is_text else plain(column)

    def _require(self, column: pa.Array) -> None:
        kind = kind_of(column.type)
        if "null" not in (kind, self._kind) and kind != self._kind:
            raise UserError(
                f"the key is of kind {kind} here and of kind {self._kind} there, so nothing is "
                "ever equal: make them alike where one of them is read"
            )


def _in_text(table: HashedKeys) -> HashedKeys:
    """A table of ints as one of text, with the same rows."""
    keys = table.column(np.arange(len(table))).cast(pa.large_string())
    groups = Groups(np.arange(len(keys)), None, keys)
    found = table_for(groups)
    assert isinstance(found, HashedKeys), "text has hashes"
    found.append(groups)
    return found


def _there(values: pa.Array) -> tuple[pa.Array, Mask]:
    """The values that are not null, and where they are."""
    if not values.null_count:
        return values, np.ones(len(values), np.bool_)
    there = values.is_valid()
    mask: Mask = there.to_numpy(zero_copy_only=False)
    return values.filter(there), mask


def _paired(left: Indices, right: Indices) -> pa.Array:
    """One number for two, of 31 bits each; null where one is missing."""
    return pa.array(left.astype(np.int64) << 32 | right, mask=(left < 0) | (right < 0))
