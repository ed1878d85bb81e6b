"""Results of Spark as the states and groups of a window, batch by batch.

What Spark leaves out is done here, by the aggregation itself: the first state of a group, an
`init`, ints and floats in one sum. So a state is what a peer would have, whoever has made it.

Where rows fire together, columns of a file become columns of a firing (`result_rows`), without a
step a group. What columns cannot say as peers would (keys of two types, ints beside floats in one
result, values that were collected) is left to `states`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.codec.values import decode_values
from onyx.flow.columns.record_batch import Columns
from onyx.keystate.buckets import GroupColumns
from onyx.keystate.extents import Number
from onyx.keystate.groups import hashable_key, slices_of
from onyx.model.kinds import AGGREGATIONS, COLLECTED, Native, aggregation_name
from onyx.spark.windows.plan import (
    COUNT,
    EXTENT,
    FLOAT,
    INT,
    ITEM,
    ITEMS,
    KEY_INT,
    KEY_OTHER,
    KEY_TEXT,
    KEY_VALUE,
    LOWER,
    SHARD,
    UPPER,
)
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.collecting import OrderedLog
from onyx.windows.compiled import CompiledWindow
from onyx.windows.firing import bounds_of, columns_of

RowsOfShards = tuple[Columns, Mapping[int, slice]]
"""Rows, and those of each shard."""


def native_of(compiled: CompiledWindow) -> Native:
    """How Spark computes the aggregation of a window. Of an ordered log it collects segments."""
    if isinstance(compiled.aggregation, OrderedLog):
        return COLLECTED
    return AGGREGATIONS[aggregation_name(compiled.window.aggregation)].native


def states(aggregation: Aggregation, batch: pa.RecordBatch) -> list[Any]:
    """The state of each row of a result."""
    found = _columns(batch, (COUNT, INT, FLOAT, ITEMS))
    if ITEMS in found:
        return [aggregation.gather(_values(items)) for items in found[ITEMS]]
    counts = [each or 0 for each in found.get(COUNT, [0] * batch.num_rows)]
    numbers = zip(*(found[name] for name in (INT, FLOAT) if name in found), strict=True)
    known = ([each for each in row if each is not None] for row in numbers)
    return list(map(aggregation.finish, counts, chain(known, repeat([]))))


def groups(batch: pa.RecordBatch) -> list[Any]:
    """The group of each row, as windows look it up."""
    found = _columns(batch, (KEY_INT, KEY_TEXT, KEY_OTHER, KEY_VALUE))
    keys: list[Any] = [None] * batch.num_rows
    for name in (KEY_INT, KEY_TEXT):
        if name in found:
            keys = [
                key if each is None else each for key, each in zip(keys, found[name], strict=True)
            ]
    if KEY_OTHER in found:
        values = found[KEY_VALUE]
        keys = [
            key if value is None else hashable_key(decode_values(value)[0])
            for key, value in zip(keys, values, strict=True)
        ]
    return keys


def groups_of(batch: pa.RecordBatch) -> pa.Array | None:
    """The groups; None: they are of several types, or of types that are not kept as columns."""
    found = [
        each for each in map(_there(batch), (KEY_INT, KEY_TEXT, KEY_OTHER)) if each is not None
    ]
    if not found:
        return pa.nulls(batch.num_rows)
    return found[0] if len(found) == 1 and not kinds.is_binary(found[0].type) else None


def result_rows(
    aggregation: Aggregation, bounds: Callable[[int], tuple[Number, Number]], batch: pa.RecordBatch
) -> RowsOfShards | None:
    """Rows of a result as they fire; None: columns cannot say them.

    Args:
        bounds: of an extent by its number.
    """
    shards = batch.column(SHARD).to_numpy()
    order = np.argsort(shards, kind="stable")
    batch = batch.take(pa.array(order))
    groups, states = groups_of(batch), _state_column(aggregation, batch)
    if groups is None or states is None:
        return None
    slices = slices_of(shards[order])
    rows = columns_of(GroupColumns(groups, states, slices), *_bound_columns(bounds, batch))
    return None if rows is None else (rows, slices)


def _columns(batch: pa.RecordBatch, names: Sequence[str]) -> Mapping[str, list[Any]]:
    there = set(batch.schema.names)
    return {name: batch.column(name).to_pylist() for name in names if name in there}


def _values(items: Sequence[Mapping[str, Any]] | None) -> Iterator[Any]:
    """What segments hold, as it was collected."""
    return (decode_values(each[ITEM])[0] for each in items or ())


def _bound_columns(
    bounds: Callable[[int], tuple[Number, Number]], batch: pa.RecordBatch
) -> tuple[pa.Array, pa.Array]:
    if LOWER in batch.schema.names:
        return batch.column(LOWER), batch.column(UPPER)
    numbers, where = np.unique(batch.column(EXTENT).to_numpy(), return_inverse=True)
    each = [bounds(number) for number in numbers.tolist()]
    lowers, uppers = (bounds_of([pair[end] for pair in each]) for end in (0, 1))
    chosen = pa.array(where)
    return lowers.take(chosen), uppers.take(chosen)


def _state_column(aggregation: Aggregation, batch: pa.RecordBatch) -> pa.Array | None:
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
