"""Columns of list views as columns of lists.

Written here because pyarrow's cast makes wrong lists of them: of a null, of a slice, and of values
that do not lie in the order of the rows. Text and bytes that are views, which pyarrow cannot take
from, go with them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from onyx.flow.columns.compute import pc


def without_views(column: pa.Array) -> pa.Array:
    """The column with lists for all list views in it, however deep."""
    return _without(column) if _has_views(column.type) else column


@lru_cache(maxsize=256)
def _has_views(kind: pa.DataType) -> bool:
    if _is_view(kind) or kinds.is_string_view(kind) or kinds.is_binary_view(kind):
        return True
    if kinds.is_nested(kind):
        return any(_has_views(kind.field(at).type) for at in range(kind.num_fields))
    return False


def _is_view(kind: pa.DataType) -> bool:
    return bool(kinds.is_list_view(kind) or kinds.is_large_list_view(kind))


def _without(column: pa.Array) -> pa.Array:
    kind = column.type
    if not _has_views(kind):
        return column
    if kinds.is_string_view(kind) or kinds.is_binary_view(kind):
        return column.cast(pa.string() if kinds.is_string_view(kind) else pa.binary())
    if _is_view(kind):
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        sizes = np.where(valid, column.sizes.to_numpy(), 0).astype(np.int64)
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        where = np.repeat(column.offsets.to_numpy().astype(np.int64), sizes) + within
        return _lists(_without(column.values).take(pa.array(where)), sizes, column)
    if kinds.is_struct(kind):
        fields = [_without(each) for each in column.flatten()]
        names = [each.name for each in kind.fields]
        return pa.StructArray.from_arrays(fields, names, mask=column.is_null())
    if kinds.is_map(kind):
        offsets = column.offsets.to_numpy().astype(np.int64)
        held = slice(offsets[0], offsets[-1])
        parts = [_without(column.keys)[held], _without(column.items)[held]]
        pairs = pa.StructArray.from_arrays(parts, ["key", "value"])
        return _lists(pairs, np.diff(offsets), column)
    sizes = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return _lists(_without(column.flatten()), sizes, column)


def _lists(values: pa.Array, sizes: NDArray[np.int64], like: pa.Array) -> pa.Array:
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=like.is_null())
