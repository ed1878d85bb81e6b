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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self

import msgspec

from onyx.flow.batch import Segment
from onyx.flow.predicates import Resolve
from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards
from onyx.keystate.records import EventType
from onyx.model.job import Trigger as Declared
from onyx.windows.firing import Firing
from onyx.windows.firing_rows import in_rows
from onyx.windows.triggers.group_states import GroupStates
from onyx.windows.triggers.refinement import Refinement
from onyx.windows.units import standard
from onyx.windows.user_functions import Call, find_calls, find_function


class Declaration(msgspec.Struct, frozen=True):
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

    def __init__(self, declaration: Declaration) -> None:
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


def _refinement(declaration: Declaration) -> Refinement:
    declared = declaration.trigger
    return Refinement.of(
        declared.refinement,
        "all" in declared.post_evictor,
        lambda name: declaration.calls(name, ("create_state_update", "apply_state_update")),
    )
