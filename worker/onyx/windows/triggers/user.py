"""A user's own trigger: functions `trigger_fire`, and if wanted `init_state` and `next_state`.

It is asked about segments, watermarks, the end of the job, and every `period` if it has one. Its
state is that of a group: `next_state` is called once an event, `trigger_fire` for each extent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.flow.batch import Segment
from onyx.keystate.extents import Number
from onyx.keystate.records import EventType
from onyx.windows.triggers.trigger import Trigger, TriggerDeclaration, WindowView

_NONE: Any = object()


class UserTrigger(Trigger):
    """Fires if its functions say so."""

    by_segment = True
    by_group = True

    def __init__(self, declaration: TriggerDeclaration) -> None:
        super().__init__(declaration)
        name, optional = declaration.trigger.type, ("init_state", "next_state")
        self._calls = declaration.calls(name, ("trigger_fire",), optional)

    def on_segment(
        self,
        window: WindowView,
        key: Any,
        extents: Sequence[Any],
        segment: Segment,
        coordinate: Number,
    ) -> Sequence[Any]:
        """Ask the functions; see `Trigger.on_segment`."""
        looked_at = self.looked_at(window, key, extents)
        return self._fires(window, "new-segment", key, looked_at, segment)

    def on_group(self, window: WindowView, event_type: EventType, key: Any) -> Sequence[Any]:
        """Ask the functions; see `Trigger.on_group`."""
        return self._fires(window, event_type, key, window.extents(key), None)

    def _fires(
        self,
        window: WindowView,
        event_type: EventType,
        key: Any,
        extents: Sequence[Any],
        segment: Segment | None,
    ) -> list[Any]:
        declared, calls = self.declared, self._calls
        state = self.states.get(key, _NONE)
        if state is _NONE:
            state = calls["init_state"](declared) if "init_state" in calls else None
        if "next_state" in calls:
            state = calls["next_state"](declared, state, window.event(event_type, key, segment))
            self.states.set(key, state)
        fires = []
        for extent in extents:
            firing = window.firing(declared, event_type, key, extent, segment)
            event = dict(firing.state_event())
            if "window-state" in declared.state_context:
                event["extent_state"] = firing.state
            if calls["trigger_fire"](declared, state, event):
                fires.append(extent)
        return fires
