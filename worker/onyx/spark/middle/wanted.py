"""Which values the columns of a frame hold that the option `schemas` names, in Spark's DDL.

Spark finds out when it reads the parts, after all input (`spark.types.fitted`). So writers look at
the values themselves, with the same rule: a value fits if it is the same in the other type. Text
fits where a field of CSV would. There is no Spark where segments are written, so the DDL is read
here. What is not known here, such as a map, is left to Spark.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.columns.compute import pc
from onyx.flow.columns.values import MISMATCH
from onyx.plugins.files.csv_cells import converted_of

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|[^\s`'<>(),:]+|[<>(),:])")
_NAMED = {
    "TINYINT": pa.int8(), "BYTE": pa.int8(), "SMALLINT": pa.int16(), "SHORT": pa.int16(),
    "INT": pa.int32(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "LONG": pa.int64(),
    "FLOAT": pa.float32(), "REAL": pa.float32(), "DOUBLE": pa.float64(),
    "STRING": pa.string(), "BINARY": pa.binary(), "BOOLEAN": pa.bool_(), "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}  # fmt: skip
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_DIGITS = 10
"""The digits of a DECIMAL that does not say how many."""
_WHOLE = pa.decimal128(20, 0)
"""All integers of 64 bits."""
_DAY_US = 86_400_000_000
Kind: TypeAlias = pa.DataType | None
"""None: a type that is not known here."""


def columns_of(ddl: str) -> dict[str, Kind]:
    """The columns that a DDL names; none where it is not understood, as Spark may refuse it."""
    tokens = _TOKEN.findall(ddl)
    if "".join(tokens) != re.sub(r"\s+(?=(?:[^`']|`[^`]*`|'[^']*')*$)", "", ddl):
        return {}
    with contextlib.suppress(ValueError):
        return dict(_fields(_Tokens(tokens), end=""))
    return {}


def require_fit(column: pa.Array, kind: Kind) -> None:
    """Raises UserError: a value of the column is none of this type."""
    try:
        if kind is None or kinds.is_null(column.type) or _fits(column, kind):
            return
    except MISMATCH:
        pass
    raise UserError(f"a value of type {column.type} is none of {kind}, as `schemas` wants it")


class _Tokens:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        if not self.next:
            raise ValueError("it ends here")
        self._at += 1
        return self._tokens[self._at - 1]

    def take_if(self, token: str) -> bool:
        found = self.next == token
        self._at += found
        return found

    def skip_to(self, *ends: str) -> None:
        """What stands before the next of these on this level."""
        depth = 0
        while self.next and (depth or self.next not in ends):
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(self.take(), 0)


def _fields(tokens: _Tokens, end: str) -> Iterator[tuple[str, Kind]]:
    """Names with their types, up to what ends them."""
    while tokens.next != end:
        token = tokens.take()
        name = token[1:-1].replace("``", "`") if token.startswith("`") else token
        tokens.take_if(":")
        yield name, _kind(tokens, end)
        tokens.skip_to(",", *([end] if end else []))  # NOT NULL, COMMENT
        tokens.take_if(",")


def _kind(tokens: _Tokens, end: str) -> Kind:
    name = tokens.take().upper()
    if name in _NAMED:
        return _NAMED[name]
    if name in _DECIMALS:
        return _decimal(tokens)
    if name == "ARRAY" and tokens.take_if("<"):
        kind = _kind(tokens, ">")
        tokens.skip_to(">")
        tokens.take()
        return None if kind is None else pa.list_(kind)
    if name == "STRUCT" and tokens.take_if("<"):
        fields = list(_fields(tokens, ">"))
        tokens.take()
        known = [(name, kind) for name, kind in fields if kind is not None]
        return pa.struct(known) if len(known) == len(fields) else None
    if name == "INTERVAL" and [tokens.take().upper() for _ in range(3)] == ["DAY", "TO", "SECOND"]:
        return pa.duration("us")
    tokens.skip_to(",", *([end] if end else []))
    return None


def _decimal(tokens: _Tokens) -> pa.DataType:
    digits, places = _DIGITS, 0
    if tokens.take_if("("):
        digits = int(tokens.take())
        places = int(tokens.take()) if tokens.take_if(",") else 0
        tokens.take()
    return pa.decimal128(digits, places)


def _fits(column: pa.Array, kind: pa.DataType) -> bool:
    have = column.type
    if have == kind:
        return True
    if kinds.is_string(kind):
        return not kinds.is_binary(have)
    if kinds.is_string(have):
        return _reads(column, kind)
    if kinds.is_list(kind) and kinds.is_list(have):
        return _fits(column.flatten(), kind.value_type)
    if kinds.is_struct(kind) and kinds.is_struct(have):
        return _fields_fit(column, kind)
    if _is_day_or_moment(have) and _is_day_or_moment(kind):
        if not kinds.is_date(kind) or kinds.is_date(have):
            return True
        return not pc.any(pc.not_equal(_within_day_us(column), 0)).as_py()
    return _is_number(have) and _is_number(kind) and _is_same_number(column, kind)


def _fields_fit(column: pa.Array, kind: pa.DataType) -> bool:
    wanted: Mapping[str, pa.DataType] = {each.name: each.type for each in kind.fields}
    return all(
        kinds.is_null(field.type) or _fits(values, wanted.get(field.name, field.type))
        for field, values in zip(column.type.fields, column.flatten(), strict=True)
    )


def _reads(column: pa.Array, kind: pa.DataType) -> bool:
    if kinds.is_binary(kind) or kinds.is_nested(kind):
        return False
    values, _ = converted_of(column, kind)
    return bool(values.null_count == column.null_count)


def _within_day_us(column: pa.Array) -> pa.Array:
    us = column.cast(pa.int64())
    return pc.subtract(us, pc.multiply(pc.divide(us, _DAY_US), _DAY_US))


def _is_day_or_moment(kind: pa.DataType) -> bool:
    return bool(kinds.is_date(kind) or kinds.is_timestamp(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_boolean(kind)
        or kinds.is_integer(kind)
        or kinds.is_floating(kind)
        or kinds.is_decimal(kind)
    )


def _is_same_number(column: pa.Array, kind: pa.DataType) -> bool:
    have = column.type
    if kinds.is_floating(have) and kinds.is_floating(kind):  # which may round
        return bool(pc.sum(pc.is_inf(column)) == pc.sum(pc.is_inf(column.cast(kind))))
    if kinds.is_boolean(have):
        column, have = column.cast(pa.int8()), pa.int8()
    if kinds.is_integer(have) and kinds.is_decimal(kind):
        column.cast(_WHOLE).cast(kind)
        return True
    cast = column.cast(kind)
    back = cast.cast(pa.int8()) if kinds.is_boolean(kind) else cast
    return not pc.any(pc.not_equal(back.cast(have), column)).as_py()
