"""Answers to questions about a window by Spark: out of its files, without Spark.

The records of its shards name the files that have its state (`windows.contents`). What peers hold
in memory is in no file yet and not in the answer: so an answer is as of the last chunk of each
peer, and durable. The plan of what is read is that of a firing; what Spark would do with it is done
here, within bounds. What was read is kept for the pages behind the first one.

The window types themselves (`windows.types`) fold the rows of files and merge the states of earlier
firings. So a state is what a peer would have, and answers are in one order. Only which extents a
row is in is not found again: rows of files say the number. States come before rows, which are
younger. Values that are collected are held until all files have been read, and folded in their
order; numbers are folded batch by batch.

Nobody keeps a file for a reader: the peer that made it removes it when a chunk of the state log has
given it up. Then that chunk names what is there instead, so the log is to be read again.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace

from onyx.codec.values import decode_values
from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Indices
from onyx.flow.columns.record_batch import concatenated
from onyx.flow.groups.codes import codes_of
from onyx.keystate.buckets import InMemory
from onyx.keystate.coded import Groups, Values
from onyx.keystate.extents import ALL, Extent, Number
from onyx.keystate.groups import Shards, dump_key, group_value, hashable_key
from onyx.keystate.records import Record, SetStates
from onyx.keystate.selection import Selection
from onyx.spark.result_files import SUFFIX
from onyx.spark.windows.buffer import INT64
from onyx.spark.windows.contents import WindowContents
from onyx.spark.windows.plan import (
    COORDINATE,
    EXTENT,
    FIRES,
    FLOAT,
    INT,
    ITEM,
    KEY_INT,
    KEY_OTHER,
    KEY_TEXT,
    LAST,
    LOWER,
    SEQ,
    SHARD,
    UPPER,
    Piece,
    Plan,
)
from onyx.spark.windows.results import groups, groups_of, states
from onyx.spark.windows.spool import LIST, Spool
from onyx.windows.assigning.assigner import Axis, BatchPart, Tiling
from onyx.windows.compiled import CompiledWindow
from onyx.windows.extent_view import ExtentView, Placed
from onyx.windows.prepared import WindowInput
from onyx.windows.types.extents import Extents, OnPeer
from onyx.windows.types.numbered import NumberedExtents
from onyx.windows.types.session import Session, dumped, recorded
from onyx.windows.types.table import TYPES
from onyx.windows.watermarks import ShardWatermarks

HELD_BYTES_MAX = 67_108_864
"""So much is held for one question: a million states, or what they have collected."""
_STATE_BYTES = 64
"""About what a state takes."""
ROWS_MAX = 100_000_000
"""So many rows are read for one question: some 10 s of a core."""
BATCH_ROWS = 65_536
NumberLimits = Mapping[str, tuple[int, int]]
"""The least and greatest number that is looked for in columns of ints."""
Show = Callable[[Any, Any], Extent]
"""Gives the answer about a group and extent."""
_KEYS = (KEY_INT, KEY_TEXT, KEY_OTHER)
_lower = attrgetter("lower")


class AskedWindow:
    """Not thread-safe."""

    def __init__(
        self,
        compiled: CompiledWindow,
        folder: Spool,
        shard_of: Callable[[Any], int],
        rows_max: int = ROWS_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        """`compiled`: without triggers, which matter to nobody who asks."""
        self._compiled = compiled
        self._all_shards = Shards(shard_of)
        self._folder = folder
        self._rows_max, self._held_bytes_max = rows_max, held_bytes_max
        watermarks = ShardWatermarks(compiled.window.id, False, False, self._all_shards)
        self._contents = WindowContents(compiled, self._all_shards, folder, watermarks)
        self._bounds = self._contents.assigner.bounds
        self._shards: set[int] = set()
        self._last: tuple[Selection, Show, list[Placed]] | None = None
        """What was read last."""

    def restore(self, shard: int, records: Iterable[Record]) -> None:
        """Apply records of the window to a shard."""
        self._shards.add(shard)
        for record in records:
            self._contents.restore(record, frozenset((shard,)))

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """Its extents that are asked for, the first in order.

        Raises:
            UserError: a file is damaged, or more would be read or held than may be.
            Unavailable: a file is gone, because there are newer records, or cannot be read now.
        """
        select = replace(asked, after=None)
        if self._last is None or self._last[0] != select:
            self._last = select, *self._read(select)
        _, show, places = self._last
        first = 0
        if asked.after is not None:
            first = bisect_right(places, asked.after.order, key=itemgetter(0))
        return [show(key, extent) for _, key, extent in places[first : first + extents_max]]

    def _read(self, select: Selection) -> tuple[Show, list[Placed]]:
        """All that is asked for, in order."""
        shards = frozenset(self._shards)
        numbers = [
            number
            for number in self._contents.holdings.extents(shards)
            if select.has_extent(*self._bounds(number))
        ]
        plan = self._contents.plan(numbers, shards, None)
        extents = ExtentsOfFiles(
            self._compiled, self._all_shards, self._bounds, plan, select, self._held_bytes_max
        )
        reader = AnswerReader(self._folder, self._rows_max)
        for piece in sorted(plan.pieces, key=lambda each: not each.partial):
            for path in piece.paths:
                for batch in reader.batches(path, _limits(select)):
                    extents.add(piece, batch)
        view = extents.finished()
        return view.shown, sorted(view.places(select), key=itemgetter(0))


def _limits(select: Selection) -> NumberLimits:
    """What the numbers of rows are within that may be asked for."""
    key = hashable_key(select.key) if select.key is not ALL else None
    return {KEY_INT: (key, key)} if type(key) is int and key in INT64 else {}


class ExtentsOfFiles:
    """The extents of one plan, for one question."""

    def __init__(
        self,
        compiled: CompiledWindow,
        shards: Shards,
        bounds: Callable[[int], tuple[Number, Number]],
        plan: Plan,
        select: Selection,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        """`bounds`: of the extent of a number."""
        self._window, self._aggregation = compiled.window.id, compiled.aggregation
        compiled = replace(compiled, triggers=(), lateness=None, columns=True)
        watermarks = ShardWatermarks(self._window, False, False, shards)
        on_peer = OnPeer(compiled, shards, InMemory(), watermarks, page_max=1, whole=True)
        self._in_sessions = plan.sessions is not None
        self._extents: Extents[Any] = (
            TYPES[compiled.window.type].made(on_peer)
            if self._in_sessions
            else NumberedExtents(on_peer, _ByNumber(bounds))
        )
        self._view = ExtentView(on_peer, self._extents, grouped=True, triggers=0)
        self._plan = plan
        self._select = select
        self._key = ALL if select.key is ALL else hashable_key(select.key)
        self._collected: list[pa.Table] = []
        self._bytes_max = held_bytes_max
        self._states_most = 0
        """There are not more states."""

    def add(self, piece: Piece, batch: pa.RecordBatch) -> None:
        """Take what a file has.

        Raises:
            UserError: it is too much.
        """
        batch = _in_extents(self._plan, piece, _that_count(piece, batch))
        keys = _keys(batch)
        if self._select.by_group:
            where = self._meant(keys)
            batch, keys = batch.take(pa.array(where)), keys.take(where)
        if not batch.num_rows:
            return
        if piece.partial:
            found = self._states(piece, batch)
            (self._add_sessions if self._in_sessions else self._add_states)(batch, keys, found)
        elif self._plan.native.collects:
            self._collected.append(pa.Table.from_batches([batch]))
        else:
            self._fold(batch, keys, _numbers(self._plan, batch))
        self._check_room(batch.num_rows)

    def finished(self) -> ExtentView:
        """What there is, when all files have been taken."""
        if self._collected:
            rows = concatenated(self._collected).sort_by(SEQ)
            for batch in rows.combine_chunks().to_batches(BATCH_ROWS):
                items = batch.column(ITEM).to_pylist()
                self._fold(batch, _keys(batch), [decode_values(item)[0] for item in items])
        self._extents.settle()
        return self._view

    def _meant(self, keys: Groups) -> Indices:
        """The rows whose groups are asked for."""
        if self._key is ALL:
            meant = [self._select.has_group(group_value(key)) for key in keys.keys]
        else:
            meant = [key == self._key for key in keys.keys]
        return np.flatnonzero(np.array(meant, np.bool_)[keys.codes])

    def _check_room(self, rows: int) -> None:
        self._states_most += rows
        collected = sum(each.nbytes for each in self._collected)
        if collected + _STATE_BYTES * self._states_most > self._bytes_max:
            self._states_most = self._extents.size()
        if collected + _STATE_BYTES * self._states_most > self._bytes_max:
            raise UserError(
                f"what is asked for takes more than {self._bytes_max:,} bytes of files of a window "
                "by Spark: ask for one group, a range of groups, or a range of time"
            )

    def _fold(self, batch: pa.RecordBatch, keys: Groups, values: Values) -> None:
        where = batch.column(COORDINATE if self._in_sessions else EXTENT)
        self._extents.add(WindowInput(values, where.to_numpy(), True, None), keys)

    def _states(self, piece: Piece, batch: pa.RecordBatch) -> list[Any]:
        """The states of a result; the first ones where groups have begun anew."""
        found = states(self._aggregation, batch)
        if not piece.emptied:
            return found
        anew = batch.column(FIRES).to_pylist() if self._in_sessions else [True] * len(found)
        init = self._aggregation.init
        return [init() if new else state for new, state in zip(anew, found, strict=True)]

    def _add_states(self, batch: pa.RecordBatch, keys: Groups, found: list[Any]) -> None:
        by_extent: dict[int, tuple[list[Any], list[Any]]] = {}
        extents = batch.column(EXTENT).to_pylist()
        for number, key, state in zip(extents, keys.rows(), found, strict=True):
            held = by_extent.setdefault(number, ([], []))
            held[0].append(dump_key(key))
            held[1].append(state)
        for number, (its_keys, its_states) in by_extent.items():
            dumps = self._aggregation.dump_all(its_states)
            self._extents.merge(SetStates(self._window, number, its_keys, dumps))

    def _add_sessions(self, batch: pa.RecordBatch, keys: Groups, found: list[Any]) -> None:
        """Sessions of results are apart; those of a group may be in several batches."""
        bounds = (batch.column(name).to_pylist() for name in (LOWER, UPPER))
        held: dict[Any, list[Session]] = {}
        for key, lower, upper, state in zip(keys.rows(), *bounds, found, strict=True):
            if key not in held:
                held[key] = list(self._extents.find(key))
            held[key].append(Session((key, None), lower, upper, state))
        owners = [
            (dump_key(key), None, *dumped(self._aggregation, sorted(its, key=_lower)))
            for key, its in held.items()
        ]
        self._extents.restore(0, recorded(self._window, owners))


class _ByNumber:
    """The coordinates of rows are the numbers of their extents."""

    bounded = False

    def __init__(self, bounds: Callable[[int], tuple[Number, Number]]) -> None:
        self.bounds = bounds

    def numbers(self, coordinate: Number) -> Sequence[int]:
        return (int(coordinate),)

    def split(self, coordinates: Axis, ints: bool) -> list[BatchPart]:
        return Tiling(0, 1, 1).split(coordinates, ints)


def _that_count(piece: Piece, batch: pa.RecordBatch) -> pa.RecordBatch:
    masks: list[pa.Array] = []
    if piece.shards is not None:
        shards = batch.column(SHARD)
        masks.append(pc.is_in(shards, pa.array(piece.shards, shards.type)))
    if piece.unfired:
        masks.append(pc.invert(batch.column(FIRES)))
    return batch.filter(reduce(pc.and_, masks)) if masks else batch


def _in_extents(plan: Plan, piece: Piece, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each extent that a row is in, of those that count."""
    extents = batch.column(EXTENT).to_numpy()
    rows = np.arange(len(extents))
    if plan.overlapping and not piece.partial:
        many = batch.column(LAST).to_numpy() - extents + 1
        rows, firsts = np.repeat(rows, many), np.cumsum(many) - many
        extents = extents[rows] + np.arange(len(rows)) - firsts[rows]
    if piece.extents is not None:
        wanted = [np.arange(low, high + 1) for low, high in piece.extents]
        within = np.isin(extents, np.concatenate(wanted))
        rows, extents = rows[within], extents[within]
    at = batch.schema.get_field_index(EXTENT)
    return batch.take(pa.array(rows)).set_column(at, EXTENT, pa.array(extents, pa.int64()))


def _keys(batch: pa.RecordBatch) -> Groups:
    """The group of each row."""
    columns = [batch.column(name) for name in _KEYS if name in batch.schema.names]
    codes, firsts = codes_of(columns, batch.num_rows)
    different = batch.take(pa.array(firsts))
    column = groups_of(different)
    if column is None or column.null_count:
        return Groups(codes, groups(different))
    return Groups(codes, None, column)


def _numbers(plan: Plan, batch: pa.RecordBatch) -> Values:
    """What is computed with of each row; where a file has nothing, there was NaN."""
    if not plan.native.merges:
        return np.empty(batch.num_rows, np.bool_)
    found = {name: batch.column(name) for name in (INT, FLOAT) if name in batch.schema.names}
    if FLOAT in found:
        found[FLOAT] = found[FLOAT].fill_null(math.nan)
    if len(found) == 1:
        (column,) = found.values()
        numbers: Values = column.to_numpy()
        return numbers
    ints, floats = (found[name].to_pylist() for name in (INT, FLOAT))
    return [other if one is None else one for one, other in zip(ints, floats, strict=True)]


class AnswerReader:
    """Reads for one question."""

    def __init__(self, folder: Spool, rows_max: int = ROWS_MAX) -> None:
        self._folder = folder
        self._left = self._rows_max = rows_max

    def batches(self, path: str, limits: NumberLimits) -> Iterator[pa.RecordBatch]:
        """What is in a part or result at a path of a plan, without row groups that have nothing
        within the limits, by their statistics.

        Raises:
            UserError: it is damaged, or more would be read than may be.
            Unavailable: it is gone, or cannot be read now.
        """
        for file in self._files(path.rpartition("/")[2]):
            with self._explained(file), self._folder.opened(file) as parquet:
                yield from self._of_file(parquet, limits)

    def _files(self, name: str) -> list[str]:
        if name.endswith(SUFFIX):
            return [name]
        with self._explained(f"{name}/{LIST}"):
            return self._folder.files(name)

    @contextlib.contextmanager
    def _explained(self, file: str) -> Iterator[None]:
        """What cannot be read because it is gone is somewhere else."""
        where = self._folder.location
        try:
            yield
        except UserError as error:
            if where.exists(file):
                raise
            raise Unavailable(f"{where.path_of(file)} is gone: a newer one is there") from error

    def _of_file(self, file: pq.ParquetFile, limits: NumberLimits) -> Iterator[pa.RecordBatch]:
        wanted = [
            number
            for number in range(file.num_row_groups)
            if _may_have(file.metadata.row_group(number), limits)
        ]
        self._left -= sum(file.metadata.row_group(number).num_rows for number in wanted)
        if self._left < 0:
            raise UserError(
                f"the question is about more than {self._rows_max:,} rows in files of a window by "
                "Spark: ask for a range of time, or wait until it has fired"
            )
        if wanted:
            yield from file.iter_batches(BATCH_ROWS, row_groups=wanted)


def _may_have(group: pq.RowGroupMetaData, limits: NumberLimits) -> bool:
    """Whether a row group may have numbers within the limits, by its statistics."""
    for number in range(group.num_columns):
        column = group.column(number)
        least, greatest = limits.get(column.path_in_schema, (None, None))
        known = column.statistics
        if least is None or greatest is None or known is None or not known.has_min_max:
            continue
        if known.max < least or known.min > greatest:
            return False
    return True
