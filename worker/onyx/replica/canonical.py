"""The replica as plain data, as bytes, and as a digest: the same for equal replicas, everywhere.

How a field is written follows from its type in `state`, once, so that a new field needs nothing
here: maps are objects, maps to None are sets and so sorted lists, and tuples are lists. Keys are
sorted, hence no hash seed shows.

A field or a job's record that an entry did not touch is the same object as before, so their bytes
are kept by identity: a digest after every entry costs what the entry changed. Pickle was rejected
(it executes what it reads), and `hash()` differs between processes.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from immutables import Map

from onyx.base.structs import UNREADABLE, fields
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.replica.spec import JobSpec
from onyx.replica.state import JobRecord, JobRun, Loaded, Partitions, Replica

FIELD_VALUES_KEPT_MAX = 64
"""Values of one field whose bytes are kept: those of a few replicas that are in use at a time."""
ALL_RECORDS_KEPT_MAX = 4
"""Replicas of which the bytes of all jobs together are kept: by far the most."""
RECORDS_KEPT_MAX = 4_096
"""Records of jobs whose bytes are kept."""

Convert = Callable[[Any], Any]


class _Shape(msgspec.Struct, frozen=True):
    """How values of one type are written and read."""

    plain: Convert
    value: Convert


def to_plain(replica: Replica) -> dict[str, Any]:
    """All fields by their names, as dicts, lists and scalars."""
    return {name: shape.plain(getattr(replica, name)) for name, shape in _SHAPES.items()}


def from_plain(plain: Mapping[str, Any]) -> Replica:
    """The replica of which this is the plain data. A field that is not given is empty.

    Raises:
        UserError: it is not a replica, or one of another version of Onyx.
    """
    unknown = sorted(set(plain) - set(_SHAPES))
    if unknown:
        raise UserError(f"replica: {unknown[0]} is not known to this version of Onyx")
    name = ""
    try:
        found = {}
        for name in plain:
            found[name] = _SHAPES[name].value(plain[name])
        return Replica(**found)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"replica: {name} cannot be read: {error}") from error


def encode(replica: Replica) -> bytes:
    """JSON, with sorted keys."""
    parts = (b'"%b":%b' % (name.encode(), _field(replica, name)[0]) for name in _SHAPES)
    return b"{" + b",".join(parts) + b"}"


def decode(data: bytes) -> Replica:
    """What `encode` wrote.

    Raises:
        UserError: the bytes are no replica.
    """
    try:
        plain = msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE as error:
        raise UserError(f"replica: not the JSON of a replica: {error}") from error
    return from_plain(plain)


def digest(replica: Replica) -> str:
    """32 hex digits: the hash of the hashes of all fields as `encode` writes them."""
    whole = blake2b(digest_size=16)
    for name in _SHAPES:
        whole.update(_field(replica, name)[1])
    return whole.hexdigest()


_Kept = dict[int, tuple[Any, bytes, bytes]]
"""By identity: the value (held, so that its identity stays its own), its bytes, their hash."""


def _field(replica: Replica, name: str) -> tuple[bytes, bytes]:
    value = getattr(replica, name)
    if name == "records":
        return _kept(_KEPT[name], ALL_RECORDS_KEPT_MAX, value, _records)
    shape = _SHAPES[name]
    return _kept(_KEPT[name], FIELD_VALUES_KEPT_MAX, value, lambda each: _json(shape.plain(each)))


def _records(records: Map[JobId, JobRecord]) -> bytes:
    parts = (
        _json(job) + b":" + _kept(_KEPT_RECORDS, RECORDS_KEPT_MAX, records[job], _record)[0]
        for job in sorted(records)
    )
    return b"{" + b",".join(parts) + b"}"


def _record(record: JobRecord) -> bytes:
    return _json(_RECORD.plain(record))


def _json(plain: Any) -> bytes:
    return msgspec.json.encode(plain, order="sorted")


def _kept(
    kept: _Kept, kept_max: int, value: Any, encoded: Callable[[Any], bytes]
) -> tuple[bytes, bytes]:
    """The bytes of a value and their hash."""
    found = kept.get(id(value))
    if found is not None and found[0] is value:
        return found[1], found[2]
    data = encoded(value)
    hashed = blake2b(data, digest_size=16).digest()
    if len(kept) >= kept_max:
        kept.clear()
    kept[id(value)] = (value, data, hashed)
    return data, hashed


def _shape(kind: Any) -> _Shape:
    """The shape of a type as it stands in `Replica`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Map and arguments[1] in (None, types.NoneType):
        return _set_of(_scalar_type(arguments[0]))
    if origin is Map:
        return _map_of(_scalar_type(arguments[0]), _shape(arguments[1]))
    if origin is tuple:
        item = _shape(arguments[0])
        return _Shape(
            lambda value: [item.plain(each) for each in value],
            lambda plain: tuple(item.value(each) for each in _checked(plain, list)),
        )
    if kind in (Partitions, JobSpec, Loaded):
        return _Shape(msgspec.to_builtins, lambda plain: msgspec.convert(plain, kind))
    if kind in (JobRecord, JobRun):
        return _record_of(kind)
    if origin in (Union, types.UnionType):  # None is the default, and defaults are not written
        return _shape(arguments[0])
    if kind is Any:
        return _Shape(lambda value: value, lambda plain: plain)
    scalar = _scalar_type(kind)
    return _Shape(lambda value: value, lambda plain: _checked(plain, scalar))


def _set_of(scalar: type) -> _Shape:
    return _Shape(
        sorted, lambda plain: Map(dict.fromkeys(_checked(each, scalar) for each in plain))
    )


def _record_of(kind: type) -> _Shape:
    """A record of the replica: the fields that differ from their defaults."""
    hints = get_type_hints(kind)
    shapes = {each.name: _shape(hints[each.name]) for each in fields(kind)}
    defaults = {each.name: each.default for each in fields(kind)}

    def plain(value: Any) -> dict[str, Any]:
        given = {name: getattr(value, name) for name in shapes}
        return {
            name: shapes[name].plain(each)
            for name, each in given.items()
            if each is not defaults[name] and each != defaults[name]
        }

    return _Shape(
        plain,
        lambda plain: kind(**{name: shapes[name].value(each) for name, each in plain.items()}),
    )


def _map_of(scalar: type, item: _Shape) -> _Shape:
    assert scalar is str, "the keys of a JSON object are text"
    return _Shape(
        lambda value: {key: item.plain(value[key]) for key in sorted(value)},
        lambda plain: Map({key: item.value(each) for key, each in plain.items()}),
    )


def _scalar_type(kind: Any) -> type:
    """The type behind a `NewType`."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    assert isinstance(kind, type)
    return kind


def _checked(plain: Any, scalar: type) -> Any:
    if type(plain) is not scalar:
        raise ValueError(f"{plain!r} is not of type {scalar.__name__}")
    return plain


_HINTS = get_type_hints(Replica)
_SHAPES = {
    each.name: _shape(_HINTS[each.name]) for each in sorted(fields(Replica), key=lambda f: f.name)
}
_KEPT: dict[str, _Kept] = {name: {} for name in _SHAPES}
_RECORD = _shape(JobRecord)
_KEPT_RECORDS: _Kept = {}
