"""Sessions of many groups that fire together, each with bounds of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from onyx.flow.batch import Indices
from onyx.keystate.buckets import Held, PairsInArrays
from onyx.windows.aggregations.array_forms import ArrayForm
from onyx.windows.arrays.session_records import Bounds
from onyx.windows.arrays.session_rows import SessionRows


class SessionPage(NamedTuple):
    """In place of an extent: several sessions."""

    rows: Indices
    bounds: Bounds


class SessionPairs(PairsInArrays):
    """The groups and states of sessions in the order of shards. To be read before they change."""

    def __init__(self, held: SessionRows, form: ArrayForm, rows: Indices) -> None:
        self._held = held
        self._form = form
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def groups(self) -> list[Any]:
        """The groups, one of several sessions as often."""
        return self._held.keys(self._held.owner_of(self._rows))

    def held(self) -> Held | None:
        """All as columns; None: no column holds the groups."""
        table = self._held.table
        groups = None if table is None else table.column(self._held.owner_of(self._rows))
        if groups is None:
            return None
        states = self._form.to_arrow(self._held.states(self._rows))
        bounds = tuple(map(pa.array, self._held.bounds(self._rows)))
        return Held(groups, states, self._held.slices(self._rows), bounds)

    def states(self) -> list[Any]:
        """Their states, as Python has them."""
        return self._form.to_python(self._held.states(self._rows))
