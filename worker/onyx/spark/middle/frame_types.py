"""Segments that no column of a frame holds, found when they come and not when the stage runs.

A key has the type of the first segment that has it, or one that holds all that came: integers and
fractions together are fractions. What is no value of that type fails alone, so a condition or a
dead letter may take it. A type alone does not say what fits: 2**60 + 1 is no float, and of a
decimal with 20 places of 38 there are 18 digits before the point. So what is known of a key is its
type and how far its numbers reach, which only grows.

All writers of a frame, peers or tasks of Spark, now and after a restart, agree on the types: what
one has taken no other takes as something else. They do so in documents in one folder, numbered 1,
2, and so on. Each has all keys that are known, and holds what the one before holds. A document is
created on the condition that there is none of its number; who comes too late looks at what the
other has written, and then at its own segments again. So a writer takes no segment before its type
is in a document. Types change a few times in the life of a job: with the first segments, and when a
number comes that is greater or of another kind than all before. All other batches read and write
nothing.

Where the option `schemas` names the columns, in Spark's DDL, a value has to be one of these, too.
Spark finds out when it reads the parts, after all input (`spark.types.fitted`). So writers look at
the values themselves, with the same rule: a value fits if it is the same in the other type. Text
fits where a field of CSV would. There is no Spark where segments are written, so the DDL is read
here. What is not known here, such as a map, is left to Spark.
"""

from __future__ import annotations

import base64
import contextlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.types as kinds

from onyx.base.structs import prepared, stored
from onyx.errors import OnyxError, UserError
from onyx.flow.batch import Segments, as_columns, format_of
from onyx.flow.columns.compute import pc
from onyx.flow.columns.values import MISMATCH
from onyx.flow.segment import Refusal, SegmentFailure
from onyx.plugins.files.csv_format import converted_of
from onyx.spark.types import joined_type
from onyx.storage.interface import Location

TYPES = "types"
"""The folder beside the parts of a stage in which its writers agree: a folder for each frame."""
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


class NumberReach(msgspec.Struct, frozen=True):
    """How far numbers reach."""

    below: int
    """All numbers are nearer to 0."""
    digits: int
    """Decimals have at most so many before and behind the point together. 0: there are none."""

    def or_more(self, other: NumberReach) -> NumberReach:
        """How far the numbers of both reach."""
        return NumberReach(max(self.below, other.below), max(self.digits, other.digits))

    def is_within(self, other: NumberReach) -> bool:
        """Whether no number is beyond."""
        return self.below <= other.below and self.digits <= other.digits


_FLOAT32, _FLOAT64 = NumberReach(2**24 + 1, 6), NumberReach(2**53 + 1, 15)
"""Within these each whole number, and each decimal, has a float of its own."""
_STEPS = sorted([_FLOAT32.below, _FLOAT64.below, *(10**digits for digits in range(78))])
"""Numbers are below one of these, so that writers need not agree anew with each greater number."""


class KnownKey(msgspec.Struct, frozen=True):
    """What is known of the values of a key."""

    type: pa.DataType
    """In Spark."""
    reaches: Mapping[str, NumberReach]
    """How far whole numbers and decimals reach, by where they are in a value."""


class FrameTypes:
    """The types of the keys of one frame."""

    def __init__(self, location: Location, ddl: str | None = None) -> None:
        """
        Args:
            location: of all writers of the frame, for what they have agreed on.
            ddl: what `schemas` says of the frame.
        """
        self._agreed = AgreedTypes(location)
        self._wanted = columns_of(ddl or "")

    def misfits(self, segments: Segments) -> list[SegmentFailure]:
        """The segments that do not fit, by index; the types of the others are agreed on then.

        Raises:
            UserError, Unavailable: see `Location`.
        """
        while True:
            found: list[SegmentFailure] = []
            known = _with(self._agreed.known, self._wanted, segments, 0, found)
            if self._agreed.agree(known):
                return found


def _with(
    known: Mapping[str, KnownKey],
    wanted: Mapping[str, Kind],
    segments: Segments,
    first: int,
    failures: list[SegmentFailure],
) -> Mapping[str, KnownKey]:
    """What is known with those segments that fit. Most batches fit whole; of others halves are
    looked at, as what the first segment of a batch has may be what is wrong."""
    try:
        return _with_all(known, wanted, segments)
    except Refusal as error:
        if len(segments) == 1:
            failures.append((first, error))
            return known
    half = len(segments) // 2
    part = format_of(segments).slice
    known = _with(known, wanted, part(segments, 0, half), first, failures)
    return _with(known, wanted, part(segments, half, len(segments)), first + half, failures)


def _with_all(
    known: Mapping[str, KnownKey], wanted: Mapping[str, Kind], segments: Segments
) -> Mapping[str, KnownKey]:
    """What is known with all segments. Raises Refusal: one does not fit."""
    columns, _, wrong = as_columns(segments)
    if wrong:
        raise Refusal(str(wrong[0][1])) from wrong[0][1]
    batch = columns.record_batch
    found = dict(known)
    names = {name.lower(): name for name in known}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if kinds.is_null(column.type):
            continue
        try:
            require_fit(column, wanted.get(name))
            found[name] = _joined(name, names.setdefault(name.lower(), name), found, column)
        except OnyxError as error:
            raise Refusal(f"key {name!r} cannot be in a DataFrame of the stage: {error}") from error
    return found


def _joined(name: str, other: str, known: Mapping[str, KnownKey], column: pa.Array) -> KnownKey:
    """What is known of a key with the values of a column."""
    if other != name:
        raise UserError(
            f"it differs from {other!r} only in case, and Spark does not tell them apart"
        )
    before = known.get(name)
    reaches = dict(before.reaches) if before is not None else {}
    for path, reach in _reaches(column, ""):
        reaches[path] = reach.or_more(reaches.get(path, NumberReach(0, 0)))
    if before is None:
        return KnownKey(joined_type(name, column.type), reaches)
    try:
        kind = joined_type(name, before.type, column.type)
    except OnyxError as error:
        raise UserError(f"it is of type {column.type} where others are {before.type}") from error
    for path, leaf in _leaves(kind, ""):
        if not _holds(leaf, reaches.get(path)):
            raise UserError(
                f"with {column.type} beside {before.type} it is of type {leaf}, which does not "
                "hold all of its values"
            )
    return KnownKey(kind, reaches)


def _reaches(column: pa.Array, path: str) -> Iterator[tuple[str, NumberReach]]:
    """How far the whole numbers and decimals in a column reach, by where they are in it."""
    kind = column.type
    if kinds.is_list(kind):
        yield from _reaches(column.flatten(), f"{path}[]")
    elif kinds.is_struct(kind):
        for field, values in zip(kind.fields, column.flatten(), strict=True):
            yield from _reaches(values, f"{path}.{field.name}")
    elif kinds.is_integer(kind) or kinds.is_decimal(kind):
        ends = pc.min_max(column).as_py()
        most = max((abs(each) for each in ends.values() if each is not None), default=0)
        yield path, _reach(most, kind)


def _reach(most: int | Decimal, kind: pa.DataType) -> NumberReach:
    digits = len(str(int(most))) + kind.scale if kinds.is_decimal(kind) else 0
    return NumberReach(_STEPS[bisect_right(_STEPS, most)], digits)


def _leaves(kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    if kinds.is_list(kind):
        yield from _leaves(kind.value_type, f"{path}[]")
    elif kinds.is_struct(kind):
        for field in kind.fields:
            yield from _leaves(field.type, f"{path}.{field.name}")
    else:
        yield path, kind


def _holds(kind: pa.DataType, reach: NumberReach | None) -> bool:
    """Whether numbers that reach so far are values of a type, which is wide enough for the types
    that they had."""
    if reach is None:
        return True
    if kinds.is_decimal(kind):
        return bool(reach.below <= 10 ** (kind.precision - kind.scale))
    if kinds.is_floating(kind):
        return reach.is_within(_FLOAT32 if kinds.is_float32(kind) else _FLOAT64)
    return True


class AgreedTypes:
    """The types of one frame, as one writer knows them."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._number = -1
        """The number of the newest document that was read; 0: there is none; -1: nobody looked."""
        self._known: Mapping[str, KnownKey] = {}

    @property
    def known(self) -> Mapping[str, KnownKey]:
        """What is known of each key."""
        if self._number < 0:
            self._read()
        return self._known

    def agree(self, known: Mapping[str, KnownKey]) -> bool:
        """Have others know it, too. False: others know something else meanwhile, which `known` has
        then."""
        if known == self._known:
            return True
        document = msgspec.json.encode(_Document(list(map(_key, known, known.values()))))
        if not self._location.create(_name(self._number + 1), document):
            self._read()
            return False
        self._number, self._known = self._number + 1, known
        return True

    def _read(self) -> None:
        """Look at the newest document."""
        names = [each.name for each in self._location.list("")]
        self._number = int(max(names).partition(".")[0]) if names else 0
        if names:
            self._known = self._decoded(max(names))

    def _decoded(self, name: str) -> Mapping[str, KnownKey]:
        data = self._location.read(name)
        document = stored(data or b"", _Document, self._location.path_of(name))
        return {each.name: _known_key(each) for each in document.keys}


@prepared
class _Key(msgspec.Struct, frozen=True):
    name: str
    schema: str
    """A schema of Arrow with this key alone."""
    reaches: dict[str, tuple[str, int]]
    """Numbers as text, of any size."""


@prepared
class _Document(msgspec.Struct, frozen=True):
    keys: list[_Key]


def _name(number: int) -> str:
    return f"{number:08d}.json"


def _key(name: str, known: KnownKey) -> _Key:
    schema = pa.schema([(name, known.type)]).serialize().to_pybytes()
    reaches = {path: (str(each.below), each.digits) for path, each in known.reaches.items()}
    return _Key(name, base64.b64encode(schema).decode(), reaches)


def _known_key(key: _Key) -> KnownKey:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(key.schema)))
    reaches = {
        path: NumberReach(int(below), digits) for path, (below, digits) in key.reaches.items()
    }
    return KnownKey(schema.field(0).type, reaches)


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
