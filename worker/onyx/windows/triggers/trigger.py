"""What a trigger is: it decides which extents of its window fire, and keeps its own state.

Each kind is a class in a module of its own, found by `table`. A window asks its triggers, in the
order of declaration, at these events; each fires and has its refinement change the extents before
the next one is asked:

* A segment has come into some extents (`on_segment`, if `by_segment`).
* The watermark has passed an extent that has got segments since it fired last (if `by_watermark`,
  at the watermark `due`).
* A timer is due (if there is a `period_ms`), or the job is completed: every extent fires; at the
  end it may be only those that have changed, or none (`at_end`). A trigger that is `by_group` is
  asked instead (`on_group`), and at each watermark as well.

Where no input of the job assigns watermarks, the segments themselves are the watermark: the
greatest coordinate that a shard has seen.

A refinement says what becomes of the state of an extent after it has fired. `accumulating` leaves
it. `discarding` sets it back to the first state, as the guide of the original says (its version 0.9
left nil, from which the next segment began anew). A user's own refinement makes an update of the
view of the state, and applies it. With the evictor `all` the extent is removed, whatever the
refinement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self

import msgspec

from onyx.flow.batch import Segment
from onyx.flow.predicates import Resolve
from onyx.keystate.copies import copied
from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards, dump_key, load_key
from onyx.keystate.records import DeleteTriggerStates, EventType, Records, SetTriggerStates, append
from onyx.model import names
from onyx.model.job import Trigger as Declared
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.firing import Firing, in_rows
from onyx.windows.units import standard
from onyx.windows.user_functions import Call, find_calls, find_function

_ABSENT: Any = object()


class TriggerDeclaration(msgspec.Struct, frozen=True):
    """A trigger as the job declares it, and what is needed to compile it."""

    trigger: Declared
    name: str
    """What its state is stored under: its id, or else its index within the window."""
    where: str
    """Begins messages about it."""
    assigned: bool
    """Whether inputs of the job assign watermarks."""
    resolve: Resolve
    columns: bool = False
    """Whether the task takes columns."""

    def function(self, name: str) -> Call:
        """A function of the user.

        Raises:
            UserError: there is none of this name.
        """
        return find_function(name, self.where, self.resolve)

    def calls(
        self, name: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, Call]:
        """The functions that a function of the user returns by name. Raises as `find_calls`."""
        return find_calls(name, self.where, needed, optional, self.resolve)


class WindowView(Protocol):
    """What a trigger sees of its window. Extents are values that only the window interprets."""

    def bounds(self, extent: Any) -> tuple[Number, Number]:
        """First and last coordinate of an extent."""
        ...

    def extents(self, key: Any) -> Sequence[Any]:
        """All extents of a group."""
        ...

    def held(self, key: Any, extents: Sequence[Any]) -> Sequence[Any]:
        """The extents that no trigger before has removed from a group."""
        ...

    def event(self, event_type: EventType, key: Any, segment: Segment | None) -> dict[str, Any]:
        """The state event for users' functions, about no extent in particular."""
        ...

    def firing(
        self, trigger: Declared, event_type: EventType, key: Any, extent: Any,
        segment: Segment | None,
    ) -> Firing:  # fmt: skip
        """What an extent would fire; nothing changes."""
        ...


class Trigger:
    """A trigger of a window. `compile` makes one for a task; a window works with its `on_peer`."""

    by_segment: bool = False
    """Whether `on_segment` is asked for each segment."""
    by_watermark: bool = False
    """Whether it fires when the watermark passes an extent."""
    by_group: bool = False
    """Whether `on_group` is asked about each group; if not, every extent fires."""
    states: GroupStates
    """What it keeps by group, in the state log too."""

    def __init__(self, declaration: TriggerDeclaration) -> None:
        """
        Raises:
            UserError: a function of the user is missing or of the wrong kind.
        """
        self.declared = declaration.trigger
        self.name = declaration.name
        period = declaration.trigger.period
        self.period_ms = None if period is None else standard(period)
        self.refinement = _refinement(declaration)
        self.at_end = self.declared.fire_at_end
        self.in_rows = in_rows(self.declared, declaration.columns) and not self.refinement.calls
        """Whether groups fire as rows. (A refinement of the user's own looks at single ones.)"""

    def on_peer(self, window: str, shards: Shards) -> Self:
        """The trigger of a window on one peer, with a state of its own."""
        made = copy(self)
        made.states = GroupStates(window, self.name, shards)
        return made

    @property
    def notes_fired(self) -> bool:
        """Whether it must be noted what it has fired for. Of a trigger that is `by_watermark` that
        is noted anyway."""
        return self.at_end == "changed" and not self.by_watermark

    @property
    def forgets(self) -> bool:
        """Whether extents that the watermark has passed are removed after firing."""
        return self.refinement.evicts

    def check_lateness(self, lateness: int | None, where: str) -> None:
        """Make sure that extents stay until the trigger has fired.

        Args:
            lateness: the window's `allowedLateness`.
            where: the window, to begin a message.

        Raises:
            UserError: they do not.
        """

    def on_segment(
        self,
        window: WindowView,
        key: Any,
        extents: Sequence[Any],
        segment: Segment,
        coordinate: Number,
    ) -> Sequence[Any]:
        """The extents that fire because a segment has come.

        Args:
            key: the segment's group.
            extents: those that have the segment.
            coordinate: of the segment on the window's axis; 0 for a global window.
        """
        raise NotImplementedError

    def on_group(self, window: WindowView, event_type: EventType, key: Any) -> Sequence[Any]:
        """The extents of a group that fire at a watermark, a timer, or the end of the job."""
        raise NotImplementedError

    def due(self, lower: Number, upper: Number, gap: int) -> Number:
        """The watermark at which an extent fires; `gap` is that of a session, else 0."""
        raise NotImplementedError

    def looked_at(self, window: WindowView, key: Any, extents: Sequence[Any]) -> Sequence[Any]:
        """The extents that a segment can make fire: its own, or with `fireAllExtents` all of its
        group."""
        if self.declared.fire_all_extents:
            return window.extents(key)
        return window.held(key, extents)


def _refinement(declaration: TriggerDeclaration) -> Refinement:
    declared = declaration.trigger
    return Refinement.of(
        declared.refinement,
        "all" in declared.post_evictor,
        lambda name: declaration.calls(name, ("create_state_update", "apply_state_update")),
    )


class Refinement(msgspec.Struct, frozen=True):
    """What a trigger does to an extent that has fired."""

    discards: bool = False
    """Back to the first state."""
    evicts: bool = False
    """The extent is removed."""
    calls: Mapping[str, Call] = msgspec.field(default_factory=dict)
    """The user's own `create_state_update` and `apply_state_update`, if declared."""

    @classmethod
    def of(
        cls, name: str | None, evicts: bool, find: Callable[[str], Mapping[str, Call]]
    ) -> Refinement:
        """The refinement of a name; `find` gives the functions of one of the user's own."""
        own = name is not None and name not in names.REFINEMENTS
        calls = find(name) if own and name is not None else {}
        return cls(discards=name == "discarding", evicts=evicts, calls=calls)

    @property
    def changes(self) -> bool:
        """Whether an extent that stays gets another state."""
        return self.discards or bool(self.calls)

    def refined(self, aggregation: Aggregation, firing: Firing, state: Any) -> Any:
        """The state after firing, of an extent that stays.

        Raises:
            UserFunctionError: the user's own refinement raised.
        """
        if self.discards:
            return aggregation.init()
        if not self.calls:
            return state
        view = aggregation.view(state)
        update = self.calls["create_state_update"](firing.trigger, view, firing.state_event())
        refined = self.calls["apply_state_update"](firing.trigger, view, update)
        return aggregation.from_view(refined)


class GroupStates:
    """States of a trigger of a window on one peer, and which have changed since the last chunk."""

    def __init__(self, window: str, trigger: str, shards: Shards) -> None:
        self._window = window
        self._trigger = trigger
        self._shards = shards
        self._states: dict[Any, Any] = {}
        self._changed: dict[Any, None] = {}

    def get(self, key: Any, default: Any) -> Any:
        """The state of a group, or `default` if it has none."""
        return self._states.get(key, default)

    def set(self, key: Any, state: Any) -> None:
        """Give a group a state, in place of the one before."""
        self._states[key] = state
        self._changed[key] = None

    def delete(self, key: Any) -> None:
        """Forget the state of a group, if it has one."""
        if self._states.pop(key, _ABSENT) is not _ABSENT:
            self._changed[key] = None

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._append(records, self._changed)
        self._changed = {}

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the states of some shards."""
        self._append(records, [key for key in self._states if self._shards[key] in shards])

    def restore(self, record: SetTriggerStates | DeleteTriggerStates) -> None:
        """Apply a record."""
        keys = map(load_key, record.groups)
        if isinstance(record, SetTriggerStates):
            self._states.update(zip(keys, map(copied, record.states), strict=True))
        else:
            for key in keys:
                self._states.pop(key, None)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, with what has changed in them."""
        for held in (self._states, self._changed):
            for key in [key for key in held if self._shards[key] in shards]:
                del held[key]

    def _append(self, records: Records, keys: Iterable[Any]) -> None:
        states = self._states
        present: dict[int, list[Any]] = {}
        absent: dict[int, list[Any]] = {}
        for key in keys:
            (present if key in states else absent).setdefault(self._shards[key], []).append(key)
        for shard, mine in present.items():
            groups, copies = [*map(dump_key, mine)], [copied(states[key]) for key in mine]
            append(records, shard, SetTriggerStates(self._window, self._trigger, groups, copies))
        for shard, mine in absent.items():
            groups = [*map(dump_key, mine)]
            append(records, shard, DeleteTriggerStates(self._window, self._trigger, groups))
