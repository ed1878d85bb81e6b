"""Results of a window by Spark, read as firings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards
from onyx.spark.windows.outcomes import Outcome
from onyx.spark.windows.plan import EXTENT, FIRES, LOWER, SHARD, UPPER
from onyx.spark.windows.result_rows import Rows, groups_of, result_rows
from onyx.spark.windows.spool import Spool
from onyx.spark.windows.states import groups, states
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.firing import AnyFiring, Firing, FiringRows

PAGE_OF_ROWS = 5
"""A page of rows has so many times `page_max`: rows of all shards are in it, and what costs is not
a row, but that a shard has some."""


class ResultReader(msgspec.Struct, frozen=True):
    """Makes firings of the rows of results."""

    aggregation: Aggregation
    bounds: Callable[[int], tuple[Number, Number]]
    """The bounds of an extent by its number."""
    folder: Spool
    page_max: int
    shards: Shards
    """Finds the shards of groups where a result does not say them."""

    def pages(
        self,
        outcome: Outcome,
        firing: Callable[[Any, int, tuple[Number, Number], Any], Firing],
        together: Callable[[Rows], FiringRows] | None,
    ) -> Iterator[list[AnyFiring]]:
        """What is left of an outcome.

        Args:
            firing: makes one of a group, its shard, bounds and a state.
            together: makes one of rows, where the trigger takes them.
        """
        rows_max = self.page_max * (1 if together is None else PAGE_OF_ROWS)
        for rows in outcome.batches(self.folder, rows_max):
            batch = _that_fire(self._sharded(rows), outcome.shards)
            if together is not None and batch.num_rows:
                found = result_rows(self.aggregation, self.bounds, batch)
                if found is not None:
                    yield [together(found)]
                    continue
            made = map(
                firing,
                groups(batch),
                batch.column(SHARD).to_pylist(),
                self._bounds(batch),
                states(self.aggregation, batch),
            )
            yield list(made)

    def _sharded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their shards (`Plan.sharded`)."""
        if SHARD in batch.schema.names:
            return batch
        column = groups_of(batch)
        if column is None or column.null_count:
            found = pa.array(map(self.shards.__getitem__, groups(batch)), pa.int16())
        else:
            found = pa.array(self.shards.of_column(column))
        return batch.append_column(SHARD, found)

    def _bounds(self, batch: pa.RecordBatch) -> Iterator[tuple[Number, Number]]:
        if LOWER not in batch.schema.names:
            return map(self.bounds, batch.column(EXTENT).to_pylist())
        lowers, uppers = (batch.column(name).to_pylist() for name in (LOWER, UPPER))
        return zip(lowers, uppers, strict=True)


def _that_fire(batch: pa.RecordBatch, shards: Collection[int]) -> pa.RecordBatch:
    """Rows that fire, and are of these shards: others are another peer's."""
    mine = pc.is_in(batch.column(SHARD), pa.array(sorted(shards), batch.column(SHARD).type))
    if FIRES in batch.schema.names:
        mine = pc.and_(mine, pc.fill_null(batch.column(FIRES), False))
    return batch.filter(mine)
