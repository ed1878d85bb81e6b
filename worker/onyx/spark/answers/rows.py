"""Rows of the files of a plan as states: a row for each group and extent that a row counts for.

This is what `windows.aggregate` has Spark do with a piece, in columns of one process. What was
collected stays a row for each item here; a group that has none has one row without.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onyx.flow.arrays import Mask
from onyx.spark.windows.plan import (
    COORDINATE,
    COUNT,
    EXTENT,
    FIRES,
    FLOAT,
    INT,
    ITEM,
    ITEMS,
    KEY_INT,
    KEY_OTHER,
    KEY_TEXT,
    KEY_VALUE,
    LAST,
    LOWER,
    SEQ,
    SHARD,
    UPPER,
    Piece,
    Plan,
    Ranges,
)

TYPES = {
    EXTENT: pa.int64(), LOWER: pa.int64(), UPPER: pa.int64(), SEQ: pa.int64(), ITEM: pa.binary(),
    KEY_INT: pa.int64(), KEY_TEXT: pa.string(), KEY_OTHER: pa.binary(), KEY_VALUE: pa.binary(),
    COUNT: pa.int64(), INT: pa.int64(), FLOAT: pa.float64(),
}  # fmt: skip


def value_names(plan: Plan) -> list[str]:
    """Columns of what groups have."""
    if plan.native.collects:
        return [SEQ, ITEM]
    return [*([COUNT] if plan.native.counts else []), *(plan.numbers if plan.native.merges else [])]


def states_of(plan: Plan, piece: Piece, batch: pa.RecordBatch, wanted: pa.Array | None) -> pa.Table:
    """The states that rows of a piece are.

    Args:
        wanted: a mask of the rows that are meant; None: all.
    """
    batch = _in_extents(plan, piece, _that_count(piece, batch, wanted))
    batch, values = (_items if plan.native.collects else _numbers)(plan, piece, batch)
    names = [EXTENT, *plan.keys, *([KEY_VALUE] if KEY_OTHER in plan.columns else [])]
    columns = {name: column_of(batch, name) for name in names}
    if plan.sessions is not None:
        lower, upper = (LOWER, UPPER) if piece.partial else (COORDINATE, COORDINATE)
        columns |= {LOWER: batch.column(lower), UPPER: batch.column(upper)}
    columns |= values
    return pa.table({name: column.cast(TYPES[name]) for name, column in columns.items()})


def column_of(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """A column in its type, which has nothing where it is not there."""
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, TYPES[name])
    return rows.column(name).cast(TYPES[name])


def _that_count(piece: Piece, batch: pa.RecordBatch, wanted: pa.Array | None) -> pa.RecordBatch:
    masks = [] if wanted is None else [wanted]
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
        within = _within(extents, piece.extents)
        rows, extents = rows[within], extents[within]
    at = batch.schema.get_field_index(EXTENT)
    return batch.take(pa.array(rows)).set_column(at, EXTENT, pa.array(extents, pa.int64()))


def _within(extents: NDArray[np.int64], ranges: Ranges) -> Mask:
    lows, highs = np.array(ranges, np.int64).T
    before = np.searchsorted(lows, extents, side="right") - 1
    found: Mask = (before >= 0) & (extents <= highs[before])
    return found


def _emptied(plan: Plan, piece: Piece, batch: pa.RecordBatch) -> Mask:
    """Rows of which only the group counts: of sessions, those that have fired."""
    if not piece.emptied:
        return np.zeros(batch.num_rows, bool)
    if plan.sessions is None:
        return np.ones(batch.num_rows, bool)
    return np.asarray(batch.column(FIRES).fill_null(False))


Values = tuple[pa.RecordBatch, dict[str, pa.Array]]
"""Rows, and the columns of what they have."""


def _numbers(plan: Plan, piece: Piece, batch: pa.RecordBatch) -> Values:
    emptied, found = pa.array(_emptied(plan, piece, batch)), {}
    for name in value_names(plan):
        column = column_of(batch, name)
        if name == COUNT and not piece.partial:
            column = pa.array(np.ones(batch.num_rows, np.int64))
        found[name] = pc.if_else(emptied, pa.scalar(None, column.type), column)
    return batch, found


def _items(plan: Plan, piece: Piece, batch: pa.RecordBatch) -> Values:
    """A row for each item that was collected."""
    if not piece.partial:
        return batch, {name: batch.column(name) for name in (SEQ, ITEM)}
    lists = batch.column(ITEMS)
    owners = pc.list_parent_indices(lists).to_numpy()
    full = ~_emptied(plan, piece, batch)[owners]
    owners, items = owners[full], pc.list_flatten(lists).filter(pa.array(full))
    without = np.setdiff1d(np.arange(batch.num_rows), owners)
    rows = batch.take(pa.array(np.concatenate([owners, without])))
    return rows, {
        name: pa.concat_arrays(
            [pc.struct_field(items, name).cast(TYPES[name]), pa.nulls(len(without), TYPES[name])]
        )
        for name in (SEQ, ITEM)
    }
