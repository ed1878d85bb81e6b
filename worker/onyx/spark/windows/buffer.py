"""Rows on their way to a part: what a window by Spark holds of a batch until a chunk is cut.

A row has the group's shard and key, the extent, and the value that is aggregated; one of a session
has its coordinate too, and the key that keeps sessions apart, if there is one. Columns of a
batch become columns of a part without a step a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from onyx.flow.columns.record_batch import concatenated
from onyx.keystate.coded import Groups, Keyed, Values, chosen
from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards, different
from onyx.model.kinds import Native, WindowKind
from onyx.spark.windows.plan import (
    COORDINATE,
    EXTENT,
    ITEM,
    KEY_SESSION,
    LAST,
    OPTIONAL,
    SEQ,
    SHARD,
)
from onyx.spark.windows.row_columns import items, key_columns, numbers, plain_keys, session_keys
from onyx.windows.assigning.assigner import Part as Assigned
from onyx.windows.prepared import Taken


class Rows(msgspec.Struct, frozen=True):
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

    def add(self, parts: Sequence[Assigned], keys: Keyed, taken: Taken) -> list[int]:
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

    def take(self) -> Rows:
        """All rows; the buffer is empty then."""
        batches, self._batches = self._batches, []
        extents, self._extents = self._extents, set()
        shards, self._shards = self._shards, set()
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        table = concatenated(tables)
        least, self.least = self.least, None
        return Rows(table, tuple(sorted(extents)), frozenset(shards), self.seq, least)

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

    def _session_columns(self, taken: Taken) -> dict[str, Any]:
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
        return numbers(values, self._native.compares) if self._native.merges else {}
