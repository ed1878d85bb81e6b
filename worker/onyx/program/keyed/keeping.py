"""What keeps the state of a function while a batch is worked on."""

from __future__ import annotations

from typing import Protocol

from onyx.program.keeping import Keeping
from onyx.program.keyed.states import KeyedStates


class KeepingStates(Keeping, Protocol):
    """What keeps the state of a function while a batch is worked on."""

    @property
    def keyed(self) -> KeyedStates:
        """The states."""
        ...
