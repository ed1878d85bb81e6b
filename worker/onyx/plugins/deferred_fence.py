"""The fence of an output that may be dead itself: it judges others only when it may act.

Every output that several incarnations write to needs it (`Output.fence`): parts, transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onyx.ids import GroupId
from onyx.plugins.protocol import PluginContext


class DeferredFence:
    """Of one writer."""

    def __init__(
        self, context: PluginContext, carry_out: Callable[[Sequence[GroupId]], None]
    ) -> None:
        """`carry_out`: fence off all incarnations but these; what it raises puts it off."""
        self._context = context
        self._carry_out = carry_out
        self._live: Sequence[GroupId] | None = None

    def ask(self, live: Sequence[GroupId]) -> None:
        """Fence off all incarnations that are not `live`, now or as soon as that is permitted."""
        self._live = live
        self.tend()

    def tend(self) -> None:
        """Do now what was put off."""
        if self._live is not None and self._context.permitted():
            self._carry_out(self._live)
            self._live = None

    def drop(self) -> None:
        """Others are alive by now: what was put off is asked anew."""
        self._live = None
