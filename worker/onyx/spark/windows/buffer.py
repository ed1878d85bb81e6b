"""Rows on their way to a part: what a window by Spark holds of a batch until a chunk is cut, and
the file that it becomes then.

A row has the group's shard and key, the extent, and the value that is aggregated; one of a session
has its coordinate too, and the key that keeps sessions apart, if there is one. Columns of a
batch become columns of a part without a step a row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onyx.codec.values import encode_values
from onyx.flow.columns.record_batch import concatenated
from onyx.flow.groups.keys import key_bytes
from onyx.keystate.coded import Groups, Keyed, Values, chosen, rows
from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards, different, group_value
from onyx.model.kinds import Native, WindowKind
from onyx.spark.windows.plan import (
    COORDINATE,
    EXTENT,
    FLOAT,
    INT,
    ITEM,
    KEY_INT,
    KEY_OTHER,
    KEY_SESSION,
    KEY_TEXT,
    KEY_VALUE,
    LAST,
    OPTIONAL,
    SEQ,
    SHARD,
)
from onyx.spark.windows.spool import Spool
from onyx.windows.assigning.assigner import BatchPart as Assigned
from onyx.windows.prepared import WindowInput

INT64 = range(-(2**63), 2**63)
"""The ints that a column may have."""


class PartRows(msgspec.Struct, frozen=True):
    """What has been gathered, as it goes into one part."""

    table: pa.Table
    extents: tuple[int, ...]
    shards: frozenset[int]
    seq: int
    """Rows that come later have higher numbers."""
    least: Number | None
    """The first coordinate, of rows of sessions."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `OPTIONAL` that it has."""
        return tuple(name for name in OPTIONAL if name in self.table.column_names)


class Buffer:
    """The rows of one window on one peer."""

    def __init__(self, native: Native, kind: WindowKind, shard_of: Shards) -> None:
        self._native = native
        self._overlapping = kind.overlapping
        self._in_sessions = not kind.known
        self._shard_of = shard_of
        self._batches: list[pa.RecordBatch] = []
        self._extents: set[int] = set()
        self._shards: set[int] = set()
        self.least: int | None = None
        """The first coordinate, of rows of sessions."""
        self.seq = 0
        """The number of the next row."""

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    @property
    def extents(self) -> set[int]:
        """Extents that rows are in."""
        return self._extents

    def begin(self, seq: int) -> None:
        """Number rows from here on: behind those of all parts that there are."""
        self.seq = max(self.seq, seq)

    def add(self, parts: Sequence[Assigned], keys: Keyed, taken: WindowInput) -> list[int]:
        """Rows of a batch, each part with the extents of its rows; gives the shards of the rows."""
        every = np.arange(len(keys))
        indices = [every if part.indices is None else part.indices for part in parts]
        many = [len(each) for each in indices]
        order = np.concatenate(indices) if indices else every[:0]
        if not len(order):
            return []
        whole = len(parts) == 1 and parts[0].indices is None
        mine = keys if whole else chosen(keys, order)
        its = taken if whole else taken.chosen(order)
        columns: dict[str, Any] = {EXTENT: np.repeat([part.numbers[0] for part in parts], many)}
        if self._overlapping:
            columns[LAST] = np.repeat([part.numbers[-1] for part in parts], many)
        columns |= self._key_columns(mine)
        shards = different(columns[SHARD].to_numpy())
        self._shards.update(shards)
        columns |= self._session_columns(its) if self._in_sessions else {}
        columns |= self._value_columns(its.extracted, order)
        self._batches.append(pa.record_batch(columns))
        self._extents.update(number for part in parts for number in part.numbers)
        self.seq += len(keys)
        return shards

    def take(self) -> PartRows:
        """All rows; the buffer is empty then."""
        batches, self._batches = self._batches, []
        extents, self._extents = self._extents, set()
        shards, self._shards = self._shards, set()
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        table = concatenated(tables)
        least, self.least = self.least, None
        return PartRows(table, tuple(sorted(extents)), frozenset(shards), self.seq, least)

    def _key_columns(self, keys: Keyed) -> dict[str, Any]:
        """Shard and key of each row; of columns, found once for each different key."""
        found = plain_keys(keys.column) if isinstance(keys, Groups) else {}
        if found and isinstance(keys, Groups):
            found[SHARD] = pa.array(self._shard_of.of_column(keys.column))
        else:
            each_once = keys.keys if isinstance(keys, Groups) else keys
            shards = list(map(self._shard_of.__getitem__, each_once))
            found = {SHARD: pa.array(shards, pa.int16()), **key_columns(each_once)}
        if not isinstance(keys, Groups):
            return found
        codes = pa.array(keys.codes)
        return {name: column.take(codes) for name, column in found.items()}

    def _session_columns(self, taken: WindowInput) -> dict[str, Any]:
        """Where each row is, and the key by which its sessions are apart from others."""
        coordinates = np.asarray(taken.coordinates, np.int64)  # whole numbers (`windows.prepared`)
        least = int(coordinates.min())
        self.least = least if self.least is None else min(least, self.least)
        found: dict[str, Any] = {COORDINATE: pa.array(coordinates)}
        keys = taken.session_keys
        if keys is not None:
            found[KEY_SESSION] = session_keys(keys)
        return found

    def _value_columns(self, values: Values, order: Any) -> dict[str, Any]:
        if self._native.collects:
            return {SEQ: self.seq + order, ITEM: items(values)}
        return number_columns(values, self._native.compares) if self._native.merges else {}


class PartFiles:
    """A part that records name, on its way to the disk (`windows.running.Files`)."""

    def __init__(self, folder: Spool, name: str, table: pa.Table) -> None:
        self._folder = folder
        self._name = name
        self._table: pa.Table | None = table

    @property
    def written(self) -> bool:
        """Whether it is durable. From any thread."""
        return self._table is None

    def write(self) -> None:
        """Make it durable. Raises Unavailable."""
        if self._table is not None:
            self._folder.write(self._name, self._table)
            self._table = None

    def remove(self) -> None:
        """It is needed."""


class Garbage:
    """Files that nobody needs once the chunk is durable."""

    def __init__(self, folder: Spool, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = names

    def write(self) -> None:
        """They are there."""

    def remove(self) -> None:
        """Remove them; what cannot be removed goes with the job."""
        for name in self._names:
            self._folder.remove(name)


def plain_keys(column: pa.Array | None) -> dict[str, pa.Array]:
    """The key column of ints or text, without a step a key; none of others."""
    if column is None:
        return {}
    if not pa.types.is_integer(column.type):
        return {KEY_TEXT: column.cast(pa.string())}
    with contextlib.suppress(pa.ArrowInvalid):  # beyond 64 bits with a sign
        return {KEY_INT: column.cast(pa.int64())}
    return {}


def key_columns(keys: Sequence[Any]) -> dict[str, pa.Array]:
    """Key columns; those that are not needed are left out."""
    kinds = set(map(type, keys))
    if kinds == {str}:
        return {KEY_TEXT: pa.array(keys, pa.string())}
    ints = [type(key) is int and key in INT64 for key in keys]
    texts = [type(key) is str for key in keys]
    found: dict[str, pa.Array] = {}
    if any(ints):
        found[KEY_INT] = _masked(keys, ints, pa.int64(), lambda key: key)
    if any(texts):
        found[KEY_TEXT] = _masked(keys, texts, pa.string(), lambda key: key)
    pairs = zip(keys, ints, texts, strict=True)
    others = [not (key is None or is_int or is_text) for key, is_int, is_text in pairs]
    if any(others):
        found[KEY_OTHER] = _masked(
            keys, others, pa.binary(), lambda key: key_bytes(group_value(key))
        )
        found[KEY_VALUE] = _masked(
            keys, others, pa.binary(), lambda key: encode_values([group_value(key)])
        )
    return found


def _masked(
    keys: Sequence[Any], mask: list[bool], kind: pa.DataType, value: Callable[[Any], Any]
) -> pa.Array:
    found = [value(key) if is_one else None for key, is_one in zip(keys, mask, strict=True)]
    return pa.array(found, kind)


def number_columns(values: Values, extreme: bool) -> dict[str, Any]:
    """Ints and floats apart. Peers never take NaN for the smallest or largest value."""
    if isinstance(values, np.ndarray):
        ints = values.dtype.kind == "i"
        found = {INT if ints else FLOAT: pa.array(values)}
    else:
        kinds = set(map(type, values))
        if len(kinds) == 1:
            found = {INT: pa.array(values, pa.int64())} if int in kinds else {
                FLOAT: pa.array(values, pa.float64())
            }  # fmt: skip
        else:
            int_values = [value if type(value) is int else None for value in values]
            floats = [None if type(value) is int else value for value in values]
            found = {INT: pa.array(int_values, pa.int64()), FLOAT: pa.array(floats, pa.float64())}
    if extreme and FLOAT in found:
        column = found[FLOAT]
        found[FLOAT] = pc.if_else(pc.is_nan(column), None, column)
    return found


def session_keys(keys: Keyed) -> pa.Array:
    """The keys that keep the sessions of a group apart."""
    different = keys.keys if isinstance(keys, Groups) else keys
    column = pa.array([key_bytes(group_value(key)) for key in different], pa.binary())
    return column.take(pa.array(keys.codes)) if isinstance(keys, Groups) else column


def items(values: Values) -> pa.Array:
    """Values that are collected as they are."""
    return pa.array([encode_values([each]) for each in rows(values)], pa.binary())
