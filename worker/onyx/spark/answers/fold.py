"""States of groups and extents, merged as they are read: what `windows.aggregate` has Spark do, in
columns of one process and within bounds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onyx.errors import UserError
from onyx.flow.arrays import Mask
from onyx.spark.answers.rows import value_names
from onyx.spark.windows.plan import (
    COUNT,
    EXTENT,
    INT,
    ITEM,
    ITEMS,
    KEY_OTHER,
    KEY_VALUE,
    LOWER,
    SEQ,
    UPPER,
    Plan,
)

HELD_BYTES_MAX = 67_108_864
"""So much is held for one question: states of some million groups, or what they have collected."""
_SESSION, _ABOUT = "session", "about"
_OVERFLOW_MIN = 2.0**62


class Fold:
    """The states of one plan."""

    def __init__(self, plan: Plan, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        self._plan = plan
        self._max = held_bytes_max
        self._tables: list[pa.Table] = []
        self._size = 0

    def add(self, states: pa.Table) -> None:
        """Take states of `rows.states_of`.

        Raises:
            UserError: there are too many.
        """
        if not len(states):
            return
        self._tables.append(states)
        self._size += states.nbytes
        if self._size <= self._max:
            return
        if not self._plan.native.collects:
            self._tables = [merged(self._plan, pa.concat_tables(self._tables))]
            self._size = self._tables[0].nbytes
        # What is merged leaves half of the room, or each batch would be merged with all before.
        if 2 * self._size > self._max:
            raise UserError(
                f"what is asked for takes more than {self._max:,} bytes of files of a window by "
                "Spark: ask for one group, a range of groups, or a range of time"
            )

    def take(self) -> pa.Table | None:
        """All states; None: there are none."""
        return merged(self._plan, pa.concat_tables(self._tables)) if self._tables else None


def merged(plan: Plan, states: pa.Table) -> pa.Table:
    """One row for each group and extent. Items that were collected become lists of them.

    Raises:
        UserError: a sum of ints does not fit in 64 bits.
    """
    keys, by = [EXTENT, *plan.keys], [EXTENT, *plan.keys]
    how = {KEY_VALUE: "one"} if KEY_OTHER in plan.columns else {}
    if plan.sessions is not None:
        states = _numbered(states, plan.sessions.gap, keys)
        by, how = [*keys, _SESSION], {**how, LOWER: "min", UPPER: "max"}
    how |= _of_values(plan)
    if ITEM in how:
        states = states.sort_by([(SEQ, "ascending"), (ITEM, "ascending")])
    if how.get(INT) == "sum":
        how[_ABOUT] = "sum"
        states = states.append_column(_ABOUT, states[INT].cast(pa.float64(), safe=False))
    found = states.group_by(by, use_threads=False).aggregate(list(how.items()))
    named = {name: found[name] for name in keys}
    named |= {name: found[f"{name}_{function}"] for name, function in how.items()}
    if _ABOUT in named:
        _check_sums(named[INT], named.pop(_ABOUT))
    if ITEM in named:
        named[ITEMS] = _lists(named.pop(ITEM).combine_chunks())
    return pa.table(named)


def _of_values(plan: Plan) -> dict[str, str]:
    """How each column of values is merged."""
    if plan.native.collects:
        return {ITEM: "list"}
    merges = plan.native.merges
    return {name: "sum" if name == COUNT else str(merges) for name in value_names(plan)}


def _check_sums(sums: pa.ChunkedArray, about: pa.ChunkedArray) -> None:
    """Arrow lets a sum of ints overflow in silence; then it is far from the sum of floats."""
    apart = pc.abs(pc.subtract(sums.cast(pa.float64(), safe=False), about))
    if (pc.max(apart).as_py() or 0) > _OVERFLOW_MIN:
        raise UserError("a sum of ints is beyond 64 bits, with which Spark does not compute")


def _lists(items: pa.ListArray) -> pa.ListArray:
    """Lists of items without those that say only that a group is there, as results have them."""
    values = items.flatten()
    known = np.concatenate([[0], np.cumsum(values.is_valid().to_numpy(zero_copy_only=False))])
    lengths = items.value_lengths().to_numpy()
    offsets = known[np.concatenate([[0], np.cumsum(lengths)])]
    listed = pa.StructArray.from_arrays([values.drop_null()], [ITEM])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), listed)


def _numbered(states: pa.Table, gap: int, keys: list[str]) -> pa.Table:
    """States in the order of their first coordinates, with the number of their session: one begins
    where the last coordinate of all before is further away than the gap (`windows.sessions`)."""
    states = states.sort_by([(name, "ascending") for name in (*keys, LOWER)])
    apart = _apart(states, keys)
    owners = np.cumsum(apart)
    lasts, ranks = np.unique(states[UPPER].to_numpy(), return_inverse=True)
    # Ranks of one group are above those of all groups before, so this is the maximum of each.
    reached = np.maximum.accumulate(owners * len(lasts) + ranks)
    before = lasts[reached[:-1] % len(lasts)]
    begins = apart.copy()
    begins[1:] |= states[LOWER].to_numpy()[1:] > before + gap
    return states.append_column(_SESSION, pa.array(np.cumsum(begins)))


def _apart(states: pa.Table, keys: list[str]) -> Mask:
    """Rows of another group than the row before."""
    found = np.zeros(len(states), bool)
    found[:1] = True
    for name in keys:
        codes = states[name].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
        found[1:] |= codes[1:] != codes[:-1]
    return found
