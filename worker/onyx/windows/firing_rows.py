"""Groups that fire together as columns: for triggers whose functions take many groups at once.

A row has the columns `group`, `lower`, `upper` and `state`, which are what a firing has of each:
the bounds are null where a window is global, and the group where its task is not grouped. Rows of
one shard follow each other, because what is emitted belongs to a shard.

Groups and states that no column holds together (text beside ints) stay single firings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.batch import Segment
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.keystate.buckets import Held, Pair, PairsInArrays
from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards, group_value
from onyx.model.job import Trigger
from onyx.model.kinds import EMIT_ROWS
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.firing import Firing, FiringRows

GROUP, LOWER, UPPER, STATE = "group", "lower", "upper", "state"
FIELDS_MAX = 64
"""Keys that states which are dicts may have together: each would be a field of all of them."""


def in_rows(trigger: Trigger, columns: bool) -> bool:
    """Whether a trigger's functions take many groups at once.

    Args:
        columns: whether its task takes columns.
    """
    if trigger.batch_format == "arrow":
        return True
    return columns and trigger.emit == EMIT_ROWS and trigger.sync is None


def row_of(firing: Firing) -> Segment:
    """A firing as a row."""
    return {
        GROUP: firing.group,
        LOWER: _finite(firing.lower),
        UPPER: _finite(firing.upper),
        STATE: _sendable(firing.state),
    }


def _sendable(state: Any) -> Any:
    """A state that a segment can carry: keys of its dicts are text. A dict by other values, as what
    `collect-by-key` collects, becomes a list of its keys with their values."""
    if not isinstance(state, dict) or all(type(key) is str for key in state):
        return state
    return [{"key": key, "value": value} for key, value in state.items()]


def held(pairs: Sequence[Pair], shards: Shards, aggregation: Aggregation) -> Held | None:
    """Groups of an extent as columns; None: no column holds them."""
    if isinstance(pairs, PairsInArrays):
        return pairs.held()
    keys = [key for key, _ in pairs]
    order: list[int] = []
    slices: dict[int, slice] = {}
    for shard, indices in shards.split(keys):
        slices[shard] = slice(len(order), len(order) + len(indices))
        order += indices
    groups = _column([group_value(keys[index]) for index in order])
    states = _column([aggregation.view(pairs[index][1]) for index in order])
    return None if groups is None or states is None else Held(groups, states, slices)


def columns_of(found: Held, lower: Number | pa.Array, upper: Number | pa.Array) -> Columns | None:
    """Rows of groups; None: they hold what columns between tasks do not.

    Args:
        lower: the first coordinate, of all groups or of each.
        upper: the last one.
    """
    many = len(found.groups)
    bounds = (
        each if isinstance(each, pa.Array) else _repeated(each, many) for each in (lower, upper)
    )
    try:
        return Columns.of(
            pa.RecordBatch.from_arrays(
                [found.groups, *bounds, found.states], names=[GROUP, LOWER, UPPER, STATE]
            )
        )
    except UserError:
        return None


def rows_of(firings: Sequence[Firing]) -> FiringRows | None:
    """Firings of one trigger at one event together; None: no column holds them."""
    by_shard: dict[int, list[Firing]] = {}
    for firing in firings:
        by_shard.setdefault(firing.shard, []).append(firing)
    slices, count = {}, 0
    for shard, its in by_shard.items():
        slices[shard] = slice(count, count + len(its))
        count += len(its)
    ordered = [firing for its in by_shard.values() for firing in its]
    groups, states = (
        _column([each.group for each in ordered]),
        _column([each.state for each in ordered]),
    )
    if groups is None or states is None:
        return None
    lower, upper = [each.lower for each in ordered], [each.upper for each in ordered]
    found, first = Held(groups, states, slices), firings[0]
    rows = columns_of(found, bounds_of(lower), bounds_of(upper))
    if rows is None:
        return None
    watermark = earliest(each.watermark for each in firings)
    return FiringRows(
        first.window, first.trigger, first.event_type, first.grouped, rows, slices, watermark
    )


def earliest(watermarks: Iterable[Number | None]) -> Number | None:
    """How far event time has come for all of them; None: unknown for one."""
    found = list(watermarks)
    known = [each for each in found if each is not None]
    return min(known) if known and len(known) == len(found) else None


def bounds_of(bounds: Sequence[Number]) -> pa.Array:
    """Some bounds as a column; those of a global window are null."""
    found = [_finite(bound) for bound in bounds]
    return pa.array(found, None if any(each is not None for each in found) else pa.int64())


def _column(values: list[Any]) -> pa.Array | None:
    """Values as a column; None: no column holds them, or their keys are too many."""
    keys: set[Any] = set()
    for each in values:
        if type(each) is dict:
            keys.update(each)
        if len(keys) > FIELDS_MAX:
            return None
    try:
        return to_array(values)
    except MISMATCH:
        return None


def _finite(bound: Number) -> Number | None:
    return bound if math.isfinite(bound) else None


def _repeated(bound: Number, many: int) -> pa.Array:
    if not math.isfinite(bound):
        return pa.nulls(many, pa.int64())
    return pa.repeat(bound, many)
