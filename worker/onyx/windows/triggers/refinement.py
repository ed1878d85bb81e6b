"""Refinements: what becomes of the state of an extent after it has fired.

`accumulating` leaves it. `discarding` sets it back to the first state, as the guide of the original
says (its version 0.9 left nil, from which the next segment began anew). A user's own refinement
makes an update of the view of the state, and applies it. With the evictor `all` the extent is
removed, whatever the refinement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onyx.model import names
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.firing import Firing
from onyx.windows.user_functions import Call


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
