"""Which rows of files a question is about, by the columns of their group keys.

Rows are left out as early as columns can tell. What they cannot tell (the beginning of a list, ints
beyond 64 bits with a sign) is asked of the group itself later (`Selection.has_group`).
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from onyx.keystate.extents import ALL
from onyx.keystate.groups import hashable_key
from onyx.keystate.selection import Selection
from onyx.spark.answers.files import Limits
from onyx.spark.answers.rows import column_of
from onyx.spark.windows.plan import KEY_INT, KEY_OTHER, KEY_TEXT
from onyx.spark.windows.row_columns import INT64, key_columns

_KEYS = (KEY_INT, KEY_TEXT, KEY_OTHER)


class Wanted:
    """The groups of a question."""

    def __init__(self, select: Selection) -> None:
        self._select = select
        self._key: tuple[str, Any] | None = None
        """The column and value of the one group; None is in no column."""
        if select.key is not ALL:
            columns = key_columns([hashable_key(select.key)])
            self._key = next(((name, columns[name][0]) for name in _KEYS if name in columns), None)

    @property
    def limits(self) -> Limits:
        """What the numbers of a row are within."""
        if self._key is None or self._key[0] != KEY_INT:
            return {}
        number = self._key[1].as_py()
        return {KEY_INT: (number, number)}

    def rows(self, batch: pa.RecordBatch) -> pa.Array | None:
        """A mask of the rows that may be meant; None: all."""
        select = self._select
        if select.key is not ALL:
            return self._of_key(batch)
        if type(select.prefix) is str:
            return _filled(pc.starts_with(column_of(batch, KEY_TEXT), select.prefix))
        if select.prefix is not None:
            return column_of(batch, KEY_OTHER).is_valid()
        bounds = select.key_from, select.key_to
        if str in map(type, bounds):
            return _within(column_of(batch, KEY_TEXT), *bounds)
        if int in map(type, bounds):
            ints = _within(column_of(batch, KEY_INT), *bounds)
            return pc.or_(ints, column_of(batch, KEY_OTHER).is_valid())
        return None

    def _of_key(self, batch: pa.RecordBatch) -> pa.Array:
        if self._key is not None:
            name, value = self._key
            return _filled(pc.equal(column_of(batch, name), value))
        there = [batch.column(name).is_null() for name in _KEYS if name in batch.schema.names]
        every = pa.array([True] * batch.num_rows, pa.bool_())
        return reduce(pc.and_, there, every)


def _within(column: pa.Array, first: Any, end: Any) -> pa.Array:
    found = column.is_valid()
    for bound, holds in ((first, pc.greater_equal), (end, pc.less)):
        if bound is not None and (type(bound) is str or bound in INT64):
            found = pc.and_(found, _filled(holds(column, bound)))
    return found


def _filled(mask: pa.Array) -> pa.Array:
    return pc.fill_null(mask, False)
