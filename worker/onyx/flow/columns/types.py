"""Which Arrow types the columns of a batch may have, and how others become one of these.

A few types only, so that whatever reads columns (grouping, windows, conditions, plugins) meets each
kind of value in one form, and a segment is the same whether it crossed a task of dicts or not:

| a column of | becomes | in a dict it is |
|---|---|---|
| bool, null, int8 to uint64, float32, float64 | itself | bool, None, int, float |
| float16 | float32 | float |
| string, large_string, string_view | string | str |
| binary, large_binary, binary_view, fixed_size_binary | binary | bytes |
| date32, date64 | date32 | date |
| time32, time64 | time64[us] | time |
| timestamp | timestamp[us, its zone], that of UTC by all of its names or by none | datetime |
| duration | duration[us] | timedelta |
| decimal32, decimal64 | decimal128 | Decimal |
| decimal128, decimal256 | itself | Decimal |
| list, large_list, fixed_size_list, list_view | list | list |
| struct | struct | dict |
| map | list of struct (key, value) | list of dicts |
| dictionary, run-end encoded | its values | |
| an extension type | its storage | |

What is finer than microseconds is cut off, down to the one before. A moment that is further away
than these reach becomes the last one that they have, which no row may hold (`codec.refusals`).
Unions and month intervals are refused. Keeping every type as it came was rejected: each reader
would need all of the table.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import lru_cache
from itertools import chain

import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserError

UTC_NAME = "UTC"
UTC_NAMES = frozenset(
    {"UTC", "UCT", "Z", "Zulu", "Universal", "+00:00", "-00:00"}
    | {f"Etc/{name}" for name in ("UTC", "UCT", "Zulu", "Universal")}
)
"""What others call it: DuckDB, pandas, Polars and Java do not agree."""
DEPTH_MAX = 64
"""Levels of lists and structs."""

_ITSELF = (
    kinds.is_boolean,
    kinds.is_null,
    kinds.is_integer,
    kinds.is_float32,
    kinds.is_float64,
    kinds.is_string,
    kinds.is_binary,
    kinds.is_date32,
    kinds.is_decimal128,
    kinds.is_decimal256,
)


def usual_type(kind: pa.DataType, depth: int = 0) -> pa.DataType:
    """The type that a column of this type gets.

    Raises:
        UserError: a segment cannot hold such values.
    """
    if depth > DEPTH_MAX:
        raise UserError(f"a column is nested deeper than {DEPTH_MAX}: make it flatter")
    if any(is_kind(kind) for is_kind in _ITSELF):
        return kind
    simple = _simple_type(kind)
    if simple is not None:
        return simple
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return usual_type(kind.value_type, depth + 1)
    if isinstance(kind, pa.BaseExtensionType):
        return usual_type(kind.storage_type, depth + 1)
    if kinds.is_map(kind):
        pair = [("key", usual_type(kind.key_type, depth + 1))]
        return pa.list_(pa.struct([*pair, ("value", usual_type(kind.item_type, depth + 1))]))
    if _is_list(kind):
        return pa.list_(usual_type(kind.value_type, depth + 1))
    if kinds.is_struct(kind):
        return pa.struct([(each.name, usual_type(each.type, depth + 1)) for each in kind.fields])
    raise UserError(f"a column of type {kind} cannot be in a segment: cast it to another type")


def _simple_type(kind: pa.DataType) -> pa.DataType | None:
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", tz=_zone(kind.tz))
    if kinds.is_float16(kind):
        return pa.float32()
    if kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return pa.string()
    if (
        kinds.is_large_binary(kind)
        or kinds.is_binary_view(kind)
        or kinds.is_fixed_size_binary(kind)
    ):
        return pa.binary()
    if kinds.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if kinds.is_date64(kind):
        return pa.date32()
    if kinds.is_time(kind):
        return pa.time64("us")
    return pa.duration("us") if kinds.is_duration(kind) else None


def _zone(name: str | None) -> str:
    """The time zone of a column, which Python has to know for the times to become datetimes."""
    if name is None or name in UTC_NAMES:
        return UTC_NAME
    try:
        pa.lib.string_to_tzinfo(name)
    except Exception as error:  # of zoneinfo, of pytz, or of Arrow's own
        raise UserError(
            f"its times are in the time zone {name[:60]!a}, which is not known here: cast it "
            'to timestamp("us", "UTC"), or install the time zone (package tzdata)'
        ) from error
    return name


def in_one_zone(schemas: Sequence[pa.Schema]) -> list[pa.Schema]:
    """The schemas of tables that are put together: a column of times of several zones has those of
    UTC in all of them, because one column has one zone. A moment stays what it is.

    Raises:
        pa.ArrowTypeError: pyarrow would make one type that lacks the values of both.
    """
    kinds_of: dict[str, set[pa.DataType]] = {}
    for field in chain.from_iterable(schemas):
        kinds_of.setdefault(field.name, set()).add(field.type)
    several = {name: found for name, found in kinds_of.items() if len(found) > 1}
    if not several:
        return list(schemas)
    for name, found in several.items():
        _require_alike(name, found)
    return [
        pa.schema(
            [f.with_type(_in_utc(f.type)) if f.name in several else f for f in each], each.metadata
        )
        for each in schemas
    ]


def _require_alike(name: str, found: Set[pa.DataType]) -> None:
    """Text is no bytes."""
    if len(found) < 2:
        return
    if {pa.string(), pa.binary()} <= found:
        raise pa.ArrowTypeError(f"column {name!r} cannot hold string and binary")
    _require_alike(name, {each.value_type for each in found if kinds.is_list(each)})
    fields: dict[str, set[pa.DataType]] = {}
    for kind in filter(kinds.is_struct, found):
        for field in kind.fields:
            fields.setdefault(field.name, set()).add(field.type)
    for field_name, types in fields.items():
        _require_alike(f"{name}.{field_name}", types)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if kinds.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, UTC_NAME)
    if kinds.is_list(kind):
        return pa.list_(_in_utc(kind.value_type))
    if kinds.is_struct(kind):
        return pa.struct([each.with_type(_in_utc(each.type)) for each in kind.fields])
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_list(kind)
        or kinds.is_large_list(kind)
        or kinds.is_fixed_size_list(kind)
        or kinds.is_list_view(kind)
        or kinds.is_large_list_view(kind)
    )


def usual_schema(schema: pa.Schema) -> pa.Schema | None:
    """The schema that a batch of this one gets; None if it has it already.

    Raises:
        UserError: a column is of a type that a segment cannot hold, or two have the same name.
    """
    try:
        return _remembered(schema)
    except TypeError:  # a user's extension type has no hash
        return _usual_schema(schema)


def _usual_schema(schema: pa.Schema) -> pa.Schema | None:
    names = schema.names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"two columns are named {twice!r}: rename one")
    types = []
    for field in schema:
        try:
            types.append(usual_type(field.type))
        except UserError as error:
            raise UserError(f"column {field.name!r}: {error}") from error
    if types == schema.types and not schema.metadata and all(each.nullable for each in schema):
        return None
    return pa.schema(list(zip(names, types, strict=True)))


_remembered = lru_cache(maxsize=256)(_usual_schema)
