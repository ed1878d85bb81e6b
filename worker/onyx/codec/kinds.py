"""What a segment may hold, how the types that msgpack lacks cross it as themselves, and why another
value cannot: where it is, what it is, and what to do.

| type | between tasks, in state and in dead letters |
|---|---|
| None, bool, str, bytes | as they are |
| int | from -2**63 to 2**64 - 1 |
| float | as it is, NaN and the infinities too |
| datetime | with a time zone, of which the name (`zoneinfo`) or else the offset is kept |
| date, timedelta, Decimal | as they are |
| time | without a time zone |
| list, tuple, dict | of these; keys of dicts are str |

Exactly these types: a subclass (an Enum of ints, a NumPy float, a defaultdict) would arrive as
another type. msgspec encodes several of them as something similar (a date as text, a set as a
list), so whoever encodes looks at the types of all values first. That is done in C, level by level
of nesting: `gc.get_referents` gives the values of a thousand dicts in a third of the time that
chaining `dict.values` takes.

Rejected: text with a mark in it, which a user's own text could bear; pickle; UUID and Enum, whose
texts serve as well and which few readers of a segment would expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from gc import get_referents
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from onyx.base.on_demand import OnDemand
from onyx.errors import describe_type
from onyx.flow.instants import has_utc

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

NESTING_MAX = 64
"""Deepest nesting of lists and dicts within a segment."""

PLAIN = frozenset({type(None), bool, int, float, str, bytes})
"""Types that msgpack has, and whose values hold no others."""
_NESTED = frozenset({list, dict, tuple})
_NATIVE = PLAIN | {list, dict, datetime}
KINDS = PLAIN | _NESTED | {datetime, date, time, timedelta, Decimal}
"""All types that a segment may hold."""
TEXT = frozenset({str})
"""The types of the keys of a segment's dicts."""

_DATE, _TIME, _TIMEDELTA, _DECIMAL, _DATETIME, _TUPLE, _MAP = range(1, 8)
"""Extension codes. They are in state logs: give none of them another meaning."""

_ZONE: OnDemand[type[ZoneInfo]] = OnDemand("zoneinfo:ZoneInfo")
"""Few jobs have times of other zones."""

Ext = msgspec.msgpack.Ext
_encoder = msgspec.msgpack.Encoder()


_HINTS = {
    "datetime": "give it a time zone, as in value.replace(tzinfo=datetime.UTC)",
    "time": "leave out its time zone, or use a datetime",
    "set": "make it a list",
    "frozenset": "make it a list",
    "int": "make it a str, or a Decimal",
    "bytearray": "make it bytes",
    "memoryview": "make it bytes",
    "complex": "make it a list of two floats",
    "UUID": "make it a str",
}
_USABLE = (
    "use None, bool, int, float, str, bytes, date, time, timedelta, Decimal, a datetime with a "
    "time zone, or lists, tuples and dicts of these"
)
_Wrong = Iterator[tuple[str, str, str]]
"""Where, what, and what to do."""


class ValueLevel(NamedTuple):
    """Values that are nested equally deep."""

    values: Sequence[Any]
    kinds: set[type]
    keys: set[type]
    """Types of the keys of the dicts among them."""


def levels(values: Sequence[Any]) -> Iterator[ValueLevel]:
    """The values, then those that they hold, and so on, down to a level that has a type which is
    none of `KINDS`.

    Raises:
        RecursionError: they are nested deeper than `NESTING_MAX`.
    """
    for _ in range(NESTING_MAX + 1):
        kinds, keys = set(map(type, values)), set[type]()
        nested: list[Any] = []
        if not kinds.isdisjoint(_NESTED):
            nested = [each for each in values if type(each) in _NESTED]
            keys = set(map(type, set().union(*(each for each in nested if type(each) is dict))))
        yield ValueLevel(values, kinds, keys)
        if not nested or not kinds <= KINDS:
            return
        values = get_referents(*nested)
    raise RecursionError(f"nested deeper than {NESTING_MAX}")


def fits(level: ValueLevel, keys: frozenset[type] = TEXT) -> bool:
    """Whether values of these types may be held, by dicts with keys of these types."""
    if level.kinds <= PLAIN:
        return True
    zoned = level.kinds & {datetime, time}
    return (
        level.kinds <= KINDS
        and level.keys <= keys
        and not (zoned and any(zone_is_wrong(each) for each in level.values if type(each) in zoned))
    )


def zone_is_wrong(value: datetime | time) -> bool:
    """A datetime has a time zone, and is of the years 1 to 9999 in UTC, too; a time has none."""
    if type(value) is not datetime:
        return value.tzinfo is not None
    return value.tzinfo is None or not has_utc(value)


def is_native(level: ValueLevel) -> bool:
    """Whether msgpack has all types of a level; of datetimes it has those in UTC."""
    if level.kinds <= PLAIN:
        return True
    return (
        level.kinds <= _NATIVE
        and level.keys <= PLAIN
        and (
            datetime not in level.kinds
            or all(each.tzinfo is UTC for each in level.values if type(each) is datetime)
        )
    )


def packed(value: Any) -> Any:
    """The value of types that msgpack has. Of types that no segment may hold it stays as it
    is; the encoder refuses most of them."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        return _packed_dict(value)
    if kind is list:
        return value if PLAIN.issuperset(map(type, value)) else [packed(each) for each in value]
    pack = _PACK.get(kind)
    return value if pack is None else pack(value)


def unpacked(code: int, data: memoryview) -> Any:
    """The value of an extension; what decoders call (`ext_hook`).

    Raises:
        ValueError: it is none of ours.
    """
    unpack = _UNPACK.get(code)
    if unpack is None:
        raise ValueError(f"extension {code} of {len(data)} bytes is not known")
    try:
        return unpack(data)
    except (ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"extension {code} is damaged") from error


_any_decoder = msgspec.msgpack.Decoder(ext_hook=unpacked)


def _packed_dict(value: Mapping[Any, Any]) -> Any:
    if not PLAIN.issuperset(map(type, value)):
        pairs = [[packed(key), packed(each)] for key, each in value.items()]
        return Ext(_MAP, _encoder.encode(pairs))
    if PLAIN.issuperset(map(type, value.values())):
        return value
    return {key: packed(each) for key, each in value.items()}


def _packed_datetime(value: datetime) -> Any:
    """In UTC msgpack has them; of other zones the name is kept beside what the clock showed."""
    zone = value.tzinfo
    if zone is UTC or zone is None:
        return value
    name = zone.key if isinstance(zone, _ZONE.load()) and zone.key else ""
    return Ext(_DATETIME, f"{value.isoformat()} {name}".encode())


def _unpacked_datetime(text: str) -> datetime:
    shown, _, name = text.partition(" ")
    value = datetime.fromisoformat(shown)
    if not name:
        return value
    try:
        return value.astimezone(_ZONE.load()(name))
    except (LookupError, OSError):  # this machine's table of zones lacks it
        return value


def _packed_tuple(value: Sequence[Any]) -> Any:
    return Ext(_TUPLE, _encoder.encode([packed(each) for each in value]))


def _texts(code: int, text: Callable[[Any], str]) -> Callable[[Any], Any]:
    return lambda value: Ext(code, text(value).encode())


def _of_text(read: Callable[[str], Any]) -> Callable[[memoryview], Any]:
    return lambda data: read(str(data, "utf-8"))


def _timedelta_text(value: timedelta) -> str:
    return f"{value.days} {value.seconds} {value.microseconds}"


def _timedelta_of(text: str) -> timedelta:
    return timedelta(*map(int, text.split(" ")))


_PACK: Mapping[type, Callable[[Any], Any]] = {
    datetime: _packed_datetime,
    date: _texts(_DATE, date.isoformat),
    time: _texts(_TIME, time.isoformat),
    timedelta: _texts(_TIMEDELTA, _timedelta_text),
    Decimal: _texts(_DECIMAL, str),
    tuple: _packed_tuple,
}
_UNPACK: Mapping[int, Callable[[memoryview], Any]] = {
    _DATE: _of_text(date.fromisoformat),
    _TIME: _of_text(time.fromisoformat),
    _TIMEDELTA: _of_text(_timedelta_of),
    _DECIMAL: _of_text(Decimal),
    _DATETIME: _of_text(_unpacked_datetime),
    _TUPLE: lambda data: tuple(_any_decoder.decode(data)),
    _MAP: lambda data: dict(_any_decoder.decode(data)),
}


def reason(value: Any, keys: frozenset[type] = TEXT) -> str:
    """What is wrong with one value, and what to do; empty if nothing is.

    Args:
        keys: types that keys of dicts may have.
    """
    return next((f"{what}: {hint}" for _, what, hint in wrong(value, "", -1, keys)), "")


def wrong(value: Any, path: str, depth: int, keys: frozenset[type] = TEXT) -> _Wrong:
    """What cannot travel in a value, from where it is."""
    kind = type(value)
    if kind in (list, tuple, dict) and depth >= NESTING_MAX:
        yield path, f"a {kind.__name__} nested deeper than {NESTING_MAX}", "make it flatter"
    elif kind is dict:
        yield from _wrong_dict(value, path, depth, keys)
    elif kind is list or kind is tuple:
        for index, each in enumerate(value):
            yield from wrong(each, f"{path}[{index}]", depth + 1, keys)
    elif kind not in KINDS:
        yield path, describe_type(value), _hint(kind)
    elif kind is datetime and value.tzinfo is not None and not has_utc(value):
        yield (
            path,
            "a datetime that in UTC is outside of the years 1 to 9999",
            "take a moment within",
        )
    elif kind in (datetime, time) and zone_is_wrong(value):
        which = "without" if kind is datetime else "with"
        yield path, f"a {kind.__name__} {which} a time zone", _HINTS[kind.__name__]
    elif kind is int and not -(2**63) <= value < 2**64:
        yield path, "an int beyond 64 bits", _HINTS["int"]
    elif kind is str and not _encodes(value):
        yield path, "a str with half of a surrogate pair", "leave such characters out"


def _wrong_dict(value: Mapping[Any, Any], path: str, depth: int, keys: frozenset[type]) -> _Wrong:
    for key, each in value.items():
        if type(key) not in keys:
            what = "make the keys of dicts str" if keys is TEXT else _hint(type(key))
            yield path, f"a key that is {describe_type(key)}", what
        elif type(key) is str and not _encodes(key):
            yield path, "a key with half of a surrogate pair", "leave such characters out"
        else:
            yield from wrong(each, f"{path}.{key}" if path else str(key), depth + 1, keys)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hint(kind: type) -> str:
    if kind.__module__.partition(".")[0] == "numpy":
        convert = "item" if hasattr(kind, "item") and kind.__name__ != "ndarray" else "tolist"
        return f"convert it with .{convert}()"
    if kind.__name__ in _HINTS:
        return _HINTS[kind.__name__]
    for base in kind.__mro__[1:]:
        if base in KINDS and base is not type(None):
            return f"convert it with {base.__name__}(), for its subclass would arrive as that"
    return _USABLE
