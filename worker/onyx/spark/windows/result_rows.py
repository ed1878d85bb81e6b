"""Results of a window by Spark as rows that fire together: columns of a file become columns of a
firing, without a step a group.

What columns cannot say as peers would (keys of two types, ints beside floats in one result, values
that were collected) is left to `states`, which makes single firings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.columns.record_batch import Columns
from onyx.keystate.buckets import Held
from onyx.keystate.extents import Number
from onyx.keystate.groups import slices_of
from onyx.spark.windows.plan import (
    COUNT,
    EXTENT,
    FLOAT,
    INT,
    ITEMS,
    KEY_INT,
    KEY_OTHER,
    KEY_TEXT,
    LOWER,
    SHARD,
    UPPER,
)
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.firing import bounds_of, columns_of

Rows = tuple[Columns, Mapping[int, slice]]
"""Rows, and those of each shard."""


def result_rows(
    aggregation: Aggregation, bounds: Callable[[int], tuple[Number, Number]], batch: pa.RecordBatch
) -> Rows | None:
    """Rows of a result as they fire; None: columns cannot say them.

    Args:
        bounds: of an extent by its number.
    """
    shards = batch.column(SHARD).to_numpy()
    order = np.argsort(shards, kind="stable")
    batch = batch.take(pa.array(order))
    groups, states = groups_of(batch), _states(aggregation, batch)
    if groups is None or states is None:
        return None
    slices = slices_of(shards[order])
    rows = columns_of(Held(groups, states, slices), *_bounds(bounds, batch))
    return None if rows is None else (rows, slices)


def _bounds(
    bounds: Callable[[int], tuple[Number, Number]], batch: pa.RecordBatch
) -> tuple[pa.Array, pa.Array]:
    if LOWER in batch.schema.names:
        return batch.column(LOWER), batch.column(UPPER)
    numbers, where = np.unique(batch.column(EXTENT).to_numpy(), return_inverse=True)
    each = [bounds(number) for number in numbers.tolist()]
    lowers, uppers = (bounds_of([pair[end] for pair in each]) for end in (0, 1))
    chosen = pa.array(where)
    return lowers.take(chosen), uppers.take(chosen)


def groups_of(batch: pa.RecordBatch) -> pa.Array | None:
    """The groups; None: they are of several types, or of types that are not kept as columns."""
    found = [
        each for each in map(_there(batch), (KEY_INT, KEY_TEXT, KEY_OTHER)) if each is not None
    ]
    if not found:
        return pa.nulls(batch.num_rows)
    return found[0] if len(found) == 1 and not kinds.is_binary(found[0].type) else None


def _states(aggregation: Aggregation, batch: pa.RecordBatch) -> pa.Array | None:
    form = aggregation.array_form()
    if form is None or ITEMS in batch.schema.names:
        return None
    there = _there(batch)
    found = [each for each in map(there, (INT, FLOAT)) if each is not None]
    counts = there(COUNT)
    if len(found) > 1 or any(each.null_count for each in (*found, counts) if each is not None):
        return None
    finished = form.finish(
        *(None if each is None else each.to_numpy() for each in (counts, *found))
    )
    return None if finished is None else form.to_arrow(finished)


def _there(batch: pa.RecordBatch) -> Callable[[str], pa.Array | None]:
    def column(name: str) -> pa.Array | None:
        """A column that has values."""
        if name not in batch.schema.names:
            return None
        found = batch.column(name)
        return found if found.null_count < len(found) else None

    return column
