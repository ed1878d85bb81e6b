"""A window by Spark that is asked about, restored from the records of its shards.

The records name the files that have its state (`windows.contents`). What peers hold in memory is in
no file yet and not in the answer: so an answer is as of the last chunk of each peer, and durable.
The plan of what is read is that of a firing; what Spark would do with it is done here, within
bounds. What was read is kept for the pages behind the first one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from onyx.keystate.extents import Extent, Number
from onyx.keystate.groups import Shards, group_value
from onyx.keystate.records import Record
from onyx.keystate.selection import Selection, place
from onyx.model.kinds import WINDOWS
from onyx.spark.answers.files import ROWS_MAX, FileReader
from onyx.spark.answers.fold import HELD_BYTES_MAX, Fold
from onyx.spark.answers.groups import Wanted
from onyx.spark.answers.order import in_order
from onyx.spark.answers.rows import states_of
from onyx.spark.windows.contents import Contents
from onyx.spark.windows.plan import EXTENT, LOWER, UPPER
from onyx.spark.windows.spool import Spool
from onyx.spark.windows.states import groups, states
from onyx.windows.compiled import CompiledWindow
from onyx.windows.shard_watermarks import ShardWatermarks

SLICE_ROWS = 1_024


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
        shards, name = Shards(shard_of), compiled.window.id
        self._aggregation = compiled.aggregation
        self._folder = folder
        self._rows_max, self._held_bytes_max = rows_max, held_bytes_max
        watermarks = ShardWatermarks(name, False, False, shards)
        self._contents = Contents(compiled, shards, folder, watermarks)
        self._of_session = () if WINDOWS[compiled.window.type].known else (None,)
        self._bounds = self._contents.assigner.bounds
        self._shards: set[int] = set()
        self._found: tuple[Selection, pa.Table | None] | None = None

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
        found = self._states(replace(asked, after=None))
        if found is None:
            return []
        first = 0
        if asked.after is not None:
            order = asked.after.order
            first = bisect_right(range(len(found)), order, key=lambda row: self._order(found, row))
        return list(islice(self._extents(found.slice(first), asked), extents_max))

    def _states(self, select: Selection) -> pa.Table | None:
        """All states that may be asked for, in order."""
        if self._found is None or self._found[0] != select:
            made = self._read(select)
            self._found = select, None if made is None else in_order(made)
        return self._found[1]

    def _read(self, select: Selection) -> pa.Table | None:
        shards, wanted = frozenset(self._shards), Wanted(select)
        numbers = [
            number
            for number in self._contents.holdings.extents(shards)
            if select.has_extent(*self._bounds(number))
        ]
        if not numbers:
            return None
        plan = self._contents.plan(numbers, shards, None)
        fold, reader = Fold(plan, self._held_bytes_max), FileReader(self._folder, self._rows_max)
        for piece in plan.pieces:
            for path in piece.paths:
                for batch in reader.batches(path, wanted.limits):
                    fold.add(states_of(plan, piece, batch, wanted.rows(batch)))
        return fold.take()

    def _order(self, found: pa.Table, row: int) -> tuple[Any, ...]:
        (batch,) = found.slice(row, 1).to_batches()
        (key,), (bounds,) = groups(batch), self._bounds_of(batch)
        return place(group_value(key), *bounds, self._of_session).order

    def _extents(self, found: pa.Table, asked: Selection) -> Iterator[Extent]:
        view = self._aggregation.view
        for batch in found.to_batches(SLICE_ROWS):
            rows = zip(
                map(group_value, groups(batch)),
                self._bounds_of(batch),
                states(self._aggregation, batch),
                strict=True,
            )
            for group, bounds, state in rows:
                if asked.has_group(group) and asked.has_extent(*bounds):
                    yield Extent(group, *bounds, view(state), self._of_session)

    def _bounds_of(self, batch: pa.RecordBatch) -> list[tuple[Number, Number]]:
        if LOWER not in batch.schema.names:
            return list(map(self._bounds, batch.column(EXTENT).to_pylist()))
        lowers, uppers = (batch.column(name).to_pylist() for name in (LOWER, UPPER))
        return list(zip(lowers, uppers, strict=True))
