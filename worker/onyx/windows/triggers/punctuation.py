"""Trigger `punctuation`: fires when the user's predicate says so, which is asked once a segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.flow.batch import Segment
from onyx.keystate.extents import Number
from onyx.windows.triggers.trigger import Trigger, TriggerDeclaration, WindowView


class PunctuationTrigger(Trigger):
    """It fires for the extents that a `segment` trigger would."""

    by_segment = True

    def __init__(self, declaration: TriggerDeclaration) -> None:
        super().__init__(declaration)
        assert declaration.trigger.pred is not None, "checked when the job is parsed"
        self._pred = declaration.function(declaration.trigger.pred)

    def on_segment(
        self,
        window: WindowView,
        key: Any,
        extents: Sequence[Any],
        segment: Segment,
        coordinate: Number,
    ) -> Sequence[Any]:
        """Ask the predicate; see `Trigger.on_segment`."""
        if not self._pred(self.declared, window.event("new-segment", key, segment)):
            return ()
        return self.looked_at(window, key, extents)
