"""What a function gets beside a segment: the states and timers of its group.

Each state is an attribute. The object is the same one for all groups of a task, and belongs to the
group of the call: a function does not keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onyx.errors import UserFunctionError, describe_type
from onyx.keystate.groups import group_value
from onyx.operators.keyed.changes import Changes
from onyx.operators.keyed.timers import CLOCKS, Clock, Timers
from onyx.operators.keyed.views import View

_TIMES_MS = range(-(2**53), 2**53)


class GroupState:
    """The states of one group at a time. `of` makes a class with the names of a task."""

    __slots__ = (
        "_changes", "_group", "_timers", "_views", "_wall_ms", "ending", "refused", "watermark",
    )  # fmt: skip

    def __init__(
        self,
        views: Mapping[str, View],
        timers: Timers | None,
        changes: Changes,
        wall_ms: Callable[[], int],
    ) -> None:
        """
        Args:
            timers: of the task; None where nothing is called when one is due.
            wall_ms: the time of the worker.
        """
        self._views = tuple(views.values())
        self._timers = timers
        self._changes = changes
        self._wall_ms = wall_ms
        self._group: Any = None
        self.watermark: int | None = None
        self.ending = False
        """Behind the end of event time no timers are set any more."""
        self.refused = 0
        """How many would have been."""

    def turn_to(self, group: Any) -> None:
        """The states of this group from now on (`keystate.groups.hashable_key`)."""
        self._group = group
        for view in self._views:
            view.group = group

    @property
    def key(self) -> Any:
        """The value of the group's key, a list of them where `groupByKey` names several."""
        return group_value(self._group)

    @property
    def now_ms(self) -> int:
        """The time of the worker, in milliseconds since 1970."""
        return self._wall_ms()

    @property
    def event_time_ms(self) -> int | None:
        """How far event time has come, in milliseconds since 1970; None: that is not known yet."""
        return self.watermark

    def clear(self) -> None:
        """The group loses all its states. Its timers stay."""
        for view in self._views:
            view.clear()

    def timer(self, name: str) -> int | None:
        """When a timer of the group is due; None: it is not set."""
        found = self._found("timer").get(self._group, name)
        return None if found is None else found[1]

    def set_timer(self, name: str, at_ms: int, clock: Clock = "event-time") -> None:
        """Have `onTimer` called when a clock has come to a time. A timer of this name that the
        group has is moved.

        Args:
            at_ms: milliseconds since 1970. A time that is past is due at once.
            clock: `event-time`, the watermark of the task, or `processing-time`, the time of the
                worker.

        Raises:
            UserFunctionError: the task has no `onTimer`, or an argument is wrong.
        """
        timers = self._found("set_timer")
        if type(name) is not str or type(at_ms) is not int or at_ms not in _TIMES_MS:
            raise UserFunctionError(
                "set_timer takes a name and a whole number of milliseconds since 1970, not "
                f"{describe_type(name)} and {describe_type(at_ms)}"
            )
        if clock not in CLOCKS:
            raise UserFunctionError(f"set_timer: clock is {' or '.join(CLOCKS)}")
        if self.ending:
            self.refused += 1
        else:
            self._swap(timers, name, (clock, at_ms))

    def delete_timer(self, name: str) -> None:
        """The group has no timer of this name any more."""
        self._swap(self._found("delete_timer"), name, None)

    def _swap(self, timers: Timers, name: str, timer: tuple[Clock, int] | None) -> None:
        before = timers.swap(self._group, name, timer)
        self._changes.add(timers.swap, self._group, name, before)

    def _found(self, what: str) -> Timers:
        if self._timers is None:
            raise UserFunctionError(
                f"{what} is called, but the task has no onTimer: give it a function that is called "
                "when a timer is due"
            )
        return self._timers


def of(views: Mapping[str, View]) -> type[GroupState]:
    """A class with a property for each state of a task. Others are refused, so a name that is
    misspelt is an error and no state that is lost."""
    properties = {name: view.attribute() for name, view in views.items()}
    return type("State", (GroupState,), {"__slots__": (), **properties})
