"""What a source is still to be told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onyx.plugins.sources.protocol import LiveSource


class OwedAcks:
    """Handles of messages that are safe, until the source has heard of it. Used by one thread.

    Bounded by the source, which gives only so much before it hears of that.
    """

    def __init__(self, acked: Callable[[int], None]) -> None:
        """`acked` is called with how many messages the source has heard of."""
        self._acked = acked
        self._owed: list[Any] = []

    def __len__(self) -> int:
        return len(self._owed)

    def add(self, handles: Sequence[Any]) -> None:
        """These are to be told."""
        self._owed += handles

    def settle(self, source: LiveSource) -> None:
        """Tell the source. Raises Unavailable: it is still owed."""
        if self._owed:
            source.ack(self._owed)
            count, self._owed = len(self._owed), []
            self._acked(count)
