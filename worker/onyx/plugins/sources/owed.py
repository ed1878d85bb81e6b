"""What a source is still to hear."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from onyx.plugins.sources.protocol import LiveSource
from onyx.telemetry.catalog import SOURCE_ACKED, SOURCE_FAILED, SOURCE_TERMINATED, Metric


class Owed:
    """Handles of messages that have been judged, until the source has heard of it. Used by one
    thread at a time.

    Bounded by the source, which gives only so much before it hears of that.
    """

    def __init__(self, counted: Callable[[Metric, int], None]) -> None:
        """`counted` is called with how many messages the source has heard of, and what."""
        self._counted = counted
        self._safe: list[Any] = []
        self._failed: dict[float, list[Any]] = defaultdict(list)
        """By how long they are to rest."""
        self._refused: list[Any] = []
        self._reasons: list[str] = []
        """Why each of these is."""

    def __len__(self) -> int:
        failed = sum(map(len, self._failed.values()))
        return len(self._safe) + failed + len(self._refused)

    def add(self, handles: Sequence[Any]) -> None:
        """These are safe."""
        self._safe += handles

    def give_back(self, handle: Any, after_s: float) -> None:
        """This one has failed, and may succeed later."""
        self._failed[after_s].append(handle)

    def refuse(self, handle: Any, reason: str) -> None:
        """This one has failed for good."""
        self._refused.append(handle)
        self._reasons.append(reason)

    def settle(self, source: LiveSource) -> None:
        """Tell the source. Raises Unavailable: what it has not heard is still owed."""
        if self._safe:
            source.ack(self._safe)
            count, self._safe = len(self._safe), []
            self._counted(SOURCE_ACKED, count)
        while self._failed:
            after_s, handles = next(iter(self._failed.items()))
            source.fail(handles, after_s)
            del self._failed[after_s]
            self._counted(SOURCE_FAILED, len(handles))
        if self._refused:
            source.term(self._refused, self._reasons)
            count, self._refused, self._reasons = len(self._refused), [], []
            self._counted(SOURCE_TERMINATED, count)
