"""Groups of a bucket of arrays with their states, before somebody says in which form.

Whoever looks at groups one by one gets pairs of Python objects, made then. Whoever takes many
groups together gets columns, for which no object is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.flow.batch import Indices
from onyx.keystate.buckets import Held, PairsInArrays
from onyx.windows.aggregations.array_forms import ArrayForm
from onyx.windows.arrays.rows import Rows

Given = Callable[[Rows, list[Any], Indices], None]
"""Called with groups that somebody gets, and will ask for, and their rows."""


class PairsOfRows(PairsInArrays):
    """Some rows of an extent. To be read before its states change."""

    def __init__(self, held: Rows, form: ArrayForm, rows: Indices, given: Given) -> None:
        self._held = held
        self._form = form
        self._rows = rows
        self._given = given

    def __len__(self) -> int:
        return len(self._rows)

    def groups(self) -> list[Any]:
        """The groups."""
        keys = self._held.keys(self._rows)
        self._given(self._held, keys, self._rows)
        return keys

    def held(self) -> Held | None:
        """Both as columns; None: no column holds the groups."""
        rows, slices = self._held.ordered(self._rows)
        table = self._held.table
        groups = None if table is None else table.column(rows)
        if groups is None:
            return None
        return Held(groups, self._form.to_arrow(self._held.states(rows)), slices)

    def states(self) -> list[Any]:
        """Their states, as Python has them."""
        return self._form.to_python(self._held.states(self._rows))
