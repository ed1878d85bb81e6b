"""Records of many small chunks as few larger ones, which set the same states.

A step of NumPy takes as long for one group as for a hundred. A stream of a few segments a chunk
makes records of a few groups, and to restore one after the other took forty times as long as state
by key. So they are joined first, if they are of the same extent and nothing else about that comes
between them: of each group the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from onyx.flow.batch import Indices
from onyx.keystate.records import (
    Record,
    SetArrays,
    SetSessionArrays,
    SetSessions,
    SetStates,
    WatermarkReached,
    WindowRecord,
)
from onyx.windows.arrays.key_table import IntValues, TextValues

_SESSIONS = ("groups", "session_keys", "lowers", "uppers", "states", "fired")
_Place = tuple[str, int | None]
"""A window and an extent; sessions are in none."""
_R = TypeVar("_R", SetArrays, SetSessionArrays)
_VALUES = {each.kind: each for each in (IntValues, TextValues)}


def joined(records: Sequence[Record]) -> Iterator[Record]:
    """Records that do to a shard what these do."""
    waiting: dict[_Place, list[Any]] = {}
    for record in records:
        place = _place(record)
        if place is not None:
            its = waiting.setdefault(place, [])
            if its and not _alike(its[0], record):
                yield _one(its)
                its.clear()
            its.append(record)
            continue
        if isinstance(record, WindowRecord) and not isinstance(record, WatermarkReached):
            for touched in [each for each in waiting if _touches(record, each)]:
                yield _one(waiting.pop(touched))
        yield record
    yield from map(_one, waiting.values())


def _place(record: Record) -> _Place | None:
    """The place of a record that can be joined with others."""
    match record:
        case SetStates(extent=extent):
            return record.window, extent
        case SetArrays(extent=extent) if record.keys in _VALUES:
            return record.window, extent
        case SetSessionArrays() if record.keys in _VALUES:
            return record.window, None
        case SetSessions():
            return record.window, None
    return None


def _touches(record: WindowRecord, place: _Place) -> bool:
    """Whether a record may be about the states of a place."""
    window, extent = place
    its = getattr(record, "extent", None)
    return record.window == window and (its is None or extent is None or its == extent)


def _alike(one: Any, other: Any) -> bool:
    """Whether two records of a place have states and groups of the same types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, SetStates | SetSessions):
        return True
    return (one.keys, [*one.types]) == (other.keys, [*other.types])


def _one(records: list[Any]) -> Record:
    first = records[0]
    if len(records) == 1:
        return first  # type: ignore[no-any-return]
    if isinstance(first, SetStates):
        groups = [key for each in records for key in each.groups]
        return replace(
            first, groups=groups, states=[one for each in records for one in each.states]
        )
    if isinstance(first, SetSessions):
        columns = (list(chain.from_iterable(map(attrgetter(name), records))) for name in _SESSIONS)
        return SetSessions(first.window, *columns)
    return _arrays(records) if isinstance(first, SetArrays) else _sessions(records)


def _arrays(records: list[SetArrays]) -> SetArrays:
    groups, last = _groups(records)
    states = [
        _chosen(each, kind, last)
        for each, kind in zip(_columns(records, "states"), records[0].types, strict=True)
    ]
    return replace(records[0], groups=groups, states=states)


def _sessions(records: list[SetSessionArrays]) -> SetSessionArrays:
    groups, last = _groups(records)
    counts = np.frombuffer(b"".join(each.counts for each in records), "<i4")
    is_last = np.zeros(len(counts), np.bool_)
    is_last[last] = True
    kept = np.flatnonzero(np.repeat(is_last, counts))
    bounds = [_chosen(each, "<i8", kept) for each in _columns(records, "bounds")]
    states = [
        _chosen(each, kind, kept)
        for each, kind in zip(_columns(records, "states"), records[0].types, strict=True)
    ]
    fired = {
        name: _chosen(b"".join(_fired(each, name) for each in records), "?", kept)
        for name in dict.fromkeys(name for each in records for name in each.fired)
    }
    return replace(
        records[0],
        groups=groups,
        counts=counts[last].tobytes(),
        bounds=bounds,
        states=states,
        fired=fired,
    )


def _fired(record: SetSessionArrays, name: str) -> bytes:
    """Whether a trigger has seen the last segment of each session."""
    return record.fired.get(name) or bytes(len(record.bounds[0]) // 8)


def _groups(records: Sequence[_R]) -> tuple[Sequence[bytes], Indices]:
    """The groups of records, each once, and where the last one of each is, in order."""
    values = _VALUES[records[0].keys]
    packed = _columns(records, "groups")
    column = values.unpacked(packed)
    last = _last_of_each(column)
    if len(last) < len(column):
        (packed,) = values.pack(column.take(pa.array(last)), [slice(0, len(last))])
    return packed, last


def _last_of_each(column: pa.Array) -> Indices:
    """The index of the last of all that are the same, in order."""
    encoded = column.dictionary_encode()
    last = np.zeros(len(encoded.dictionary), np.intp)
    last[encoded.indices.to_numpy()] = np.arange(len(column))  # of one the last assignment stays
    last.sort()
    return last


def _columns(records: Sequence[_R], name: str) -> list[bytes]:
    """The columns of records, end to end."""
    return [b"".join(each) for each in zip(*(getattr(each, name) for each in records), strict=True)]


def _chosen(column: bytes, kind: str, rows: Indices) -> bytes:
    found: bytes = np.frombuffer(column, kind)[rows].tobytes()
    return found
