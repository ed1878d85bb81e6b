"""The leaves of a batch as they leave for the children of a task.

Conditions may put a segment in the index of a leaf (what describes an error of a predicate), and
leave keys out for some children. In columns the first is no row, so it goes beside them as a dict;
and a key is a whole column, which is left out if the key is to be left out of all rows that go to
the child, and otherwise null in those rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa

from onyx.flow.batch import Indices, Mask, Segment
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns
from onyx.flow.conditions import without_keys
from onyx.flow.formats import DICTS, format_of
from onyx.flow.leaves import Leaves
from onyx.flow.routed import NOTHING, Outgoing, with_extra

Extra = list[tuple[int, Segment]]
"""Segments made of exceptions, each with its parent."""


class Leaving(ABC):
    """The leaves of one batch."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self._excluded: list[tuple[frozenset[str], frozenset[str], Mask]] = []
        """Keys that a condition leaves out, for which children, and the leaves it held for."""

    @abstractmethod
    def replace(self, index: int, segment: Segment) -> None:
        """Put a segment in the index of a leaf."""

    @abstractmethod
    def _in_mask(
        self, child: str, mask: Mask, extra: Extra
    ) -> tuple[Outgoing, Outgoing | None]: ...

    def exclude(self, keys: frozenset[str], children: frozenset[str], rows: Mask) -> None:
        """Leave keys out of these leaves for these children."""
        if keys and children:
            self._excluded.append((keys, children, rows))

    def outgoing(
        self, child: str, mask: Mask | None, extra: Extra
    ) -> tuple[Outgoing, Outgoing | None]:
        """What a child gets of the leaves in the mask and besides them, and what of that goes
        apart because it is no row of the same columns."""
        if mask is None:
            return with_extra([], Outgoing([], NOTHING), extra), None
        return self._in_mask(child, mask, extra)

    def _lineage(self, found: Indices) -> tuple[Indices | None, Indices | None]:
        leaves = self._leaves
        parents = found if leaves.parents is None else leaves.parents[found]
        return parents, None if leaves.child_index is None else leaves.child_index[found]


class _Dicts(Leaving):
    def __init__(self, segments: list[Segment], leaves: Leaves) -> None:
        super().__init__(leaves)
        self._given = self._segments = segments

    def replace(self, index: int, segment: Segment) -> None:
        if self._segments is self._given:
            self._segments = list(self._given)
        self._segments[index] = segment

    def _in_mask(self, child: str, mask: Mask, extra: Extra) -> tuple[Outgoing, None]:
        leaves, segments = self._leaves, self._of_child(child)
        if mask.all():
            outgoing = Outgoing(segments, leaves.parents, leaves.child_index)
        else:
            segments = DICTS.filter(segments, mask)
            outgoing = Outgoing(segments, *self._lineage(np.flatnonzero(mask)))
        return with_extra(segments, outgoing, extra), None

    def _of_child(self, child: str) -> list[Segment]:
        mine = [(keys, rows) for keys, children, rows in self._excluded if child in children]
        if not mine:
            return self._segments
        segments = list(self._segments)
        for keys, rows in mine:
            for index in np.flatnonzero(rows).tolist():
                segments[index] = without_keys(segments[index], keys)
        return segments


class _Columns(Leaving):
    def __init__(self, columns: Columns, leaves: Leaves) -> None:
        super().__init__(leaves)
        self._columns = columns
        self._beside: dict[int, Segment] = {}
        """What goes in the index of rows."""

    def replace(self, index: int, segment: Segment) -> None:
        self._beside[index] = segment

    def _in_mask(self, child: str, mask: Mask, extra: Extra) -> tuple[Outgoing, Outgoing | None]:
        beside = [index for index in sorted(self._beside) if mask[index]]
        if beside:
            mask = mask.copy()
            mask[beside] = False
        leaves, columns, excluded = self._leaves, self._columns, self._by_key(child)
        if mask.all():
            lineage = leaves.parents, leaves.child_index
        else:
            lineage = self._lineage(np.flatnonzero(mask))
            columns = columns.filter(mask)
            excluded = {key: rows[mask] for key, rows in excluded.items()}
        outgoing = Outgoing(_without(columns, excluded), *lineage)
        if not beside and not extra:
            return outgoing, None
        segments = [self._without_keys(child, index) for index in beside]
        apart = Outgoing(segments, *self._lineage(np.array(beside, dtype=np.intp)))
        return outgoing, with_extra(segments, apart, extra)

    def _by_key(self, child: str) -> dict[str, Mask]:
        """For each key that is left out somewhere, of which leaves."""
        rows: dict[str, list[Mask]] = {}
        for keys, children, found in self._excluded:
            if child in children:
                for key in keys:
                    rows.setdefault(key, []).append(found)
        return {key: reduce(or_, masks) for key, masks in rows.items()}

    def _without_keys(self, child: str, index: int) -> Segment:
        segment = self._beside[index]
        for keys, children, rows in self._excluded:
            if child in children and rows[index]:
                segment = without_keys(segment, keys)
        return segment


def leaving(leaves: Leaves) -> Leaving:
    """The leaves of a batch, before anything is decided about them."""
    made = format_of(leaves.segments).choose(_Dicts, _Columns)
    return made(leaves.segments, leaves)


def _without(columns: Columns, excluded: dict[str, Mask]) -> Columns:
    if not excluded:
        return columns
    dropped = [key for key, rows in excluded.items() if rows.all()]
    batch = columns.without(dropped).record_batch
    for key, rows in excluded.items():
        if key in dropped or not columns.has(key) or not rows.any():
            continue
        index = batch.schema.get_field_index(key)
        column = batch.column(index)
        nulled = pc.if_else(pa.array(rows), pa.scalar(None, column.type), column)
        batch = batch.set_column(index, batch.schema.field(index), nulled)
    return Columns(batch)
