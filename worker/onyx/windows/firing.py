"""What comes out of windows: firings, one by one or many groups as columns, and late segments.

Values only. The task calls the user's `sync` and `emit` with them; a firing is complete by itself,
so that this may happen later and its state is the one at the moment of firing.

Triggers whose functions take many groups at once get rows with the columns `group`, `lower`,
`upper` and `state`, which are what a firing has of each: the bounds are null where a window is
global, and the group where its task is not grouped. Rows of one shard follow each other, because
what is emitted belongs to a shard. Groups and states that no column holds together (text beside
ints) stay single firings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.batch import Segment
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.keystate.buckets import GroupColumns, Pair, PairsInArrays
from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards, group_value
from onyx.keystate.pages import Emission
from onyx.keystate.records import EventType
from onyx.model.job import Trigger, Window
from onyx.model.kinds import EMIT_ROWS
from onyx.windows.aggregations.aggregation import Aggregation

PENDING: Final[list[AnyFiring]] = []
"""This very page: the next one is being computed elsewhere, and is to be asked for later."""
GROUP, LOWER, UPPER, STATE = "group", "lower", "upper", "state"
FIELDS_MAX = 64
"""Keys that states which are dicts may have together: each would be a field of all of them."""


class Firing(NamedTuple):
    """One extent handed to one trigger's functions. (A tuple: thousands are made at once.)"""

    window: Window
    trigger: Trigger
    event_type: EventType
    shard: int
    grouped: bool
    group: Any
    """The group's key as the user's function or key gave it; None when the task is not grouped."""
    lower: Number
    """First coordinate of the extent; minus infinity for a global window."""
    upper: Number
    """Last coordinate of the extent; infinity for a global window."""
    state: Any
    """State of the extent at this moment; nothing changes it afterwards."""
    segment: Segment | None = None
    """The segment that made it fire, for `new-segment`."""
    watermark: Number | None = None
    """Event time up to which everything has come, as far as known."""

    def state_event(self) -> Mapping[str, Any]:
        """The mapping that user functions get as their state event."""
        return {
            "event_type": self.event_type,
            "segment": self.segment,
            "grouped": self.grouped,
            "group_key": self.group,
            "lower_bound": self.lower,
            "upper_bound": self.upper,
            "window": self.window,
            "watermark": self.watermark,
        }


class FiringRows(msgspec.Struct, frozen=True):
    """Groups of one window that one trigger hands to its functions together (`firing_rows`)."""

    window: Window
    trigger: Trigger
    event_type: EventType
    grouped: bool
    rows: Columns
    """A row a group, those of a shard together."""
    shards: Mapping[int, slice]
    """The rows of each shard."""
    watermark: Number | None = None
    """Event time up to which everything has come, as far as known for all."""

    def of(self, shard: int) -> Columns:
        """The rows of a shard."""
        mine = self.shards[shard]
        return self.rows.slice(mine.start, mine.stop)

    def state_event(self) -> Mapping[str, Any]:
        """The mapping that user functions get as their state event: what all rows have in
        common."""
        return {
            "event_type": self.event_type,
            "segment": None,
            "grouped": self.grouped,
            "window": self.window,
            "watermark": self.watermark,
        }


AnyFiring = Firing | FiringRows | Emission

FiringPages = Iterator[list[AnyFiring]]
"""What fires at one moment, page by page. The firings of a page have fired and have changed the
state; those of the next page have not, until it is asked for. Between two pages changes may be
taken, and questions answered; nothing else may be done before the last page."""


class BatchOutcome(msgspec.Struct, frozen=True):
    """What became of a batch."""

    firings: list[AnyFiring]
    """In the order in which they are to be carried out."""
    late: list[int]
    """Indices of the segments that are late for every window that they belong to."""


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


def held(pairs: Sequence[Pair], shards: Shards, aggregation: Aggregation) -> GroupColumns | None:
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
    return None if groups is None or states is None else GroupColumns(groups, states, slices)


def columns_of(
    found: GroupColumns, lower: Number | pa.Array, upper: Number | pa.Array
) -> Columns | None:
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
    found, first = GroupColumns(groups, states, slices), firings[0]
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
