"""Ids that clients or a source give what they send: known as long as they may come again, so that
it is taken once. Bounded by number and by age; a journal knows them further on
(`Feed.remembered`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from onyx.base.seams import Clock
from onyx.journal.logs import RememberedRequest

PIECE = 1_000
REST_S = 0.001
"""After each piece, for other threads."""


class KnownId(Protocol):
    """What is known of an id."""

    @property
    def digest(self) -> bytes:
        """Hash of the content; empty where nobody compares it."""
        ...

    @property
    def first(self) -> int:
        """Position of the first segment."""
        ...

    @property
    def count(self) -> int:
        """Segments."""
        ...

    @property
    def wall_ms(self) -> int:
        """When it came."""
        ...

    @property
    def outcomes(self) -> Any:
        """Where segments of it have failed for good, what became of it; else None."""
        ...

    @property
    def left(self) -> int:
        """Above 0 while the id may not be forgotten."""
        ...


K = TypeVar("K", bound=KnownId)


class IdMemory(Generic[K]):
    """Ids in the order of their positions, which are forgotten from the oldest on. Not thread-safe.

    Invariant: an id whose entry has something `left` is not forgotten, nor any that came after it.
    """

    def __init__(self, clock: Clock, ids_max: int, keep_ms: int, since_ms: int = 0) -> None:
        """
        Args:
            since_ms: no id counts as older than this time.
        """
        self._clock = clock
        self._max = ids_max
        self._keep_ms = keep_ms
        self._since_ms = since_ms
        self._known: dict[str, K] = {}
        self._order: deque[str] = deque()
        """The ids of it. A dict from which the first are taken looks through all that were, each
        time that it is asked for the first."""

    def get(self, id: str) -> K | None:
        """What is known of an id."""
        return self._known.get(id)

    def __contains__(self, id: str) -> bool:
        return id in self._known

    def add(self, id: str, entry: K) -> None:
        """An id behind all others."""
        assert id not in self._known, "what is known comes again, and is not added"
        self._known[id] = entry
        self._order.append(id)

    def forget(self) -> None:
        """Drop ids that are too many or too old."""
        oldest_ms = self._clock.wall_ms() - self._keep_ms
        while self._order:
            entry = self._known[self._order[0]]
            old = max(entry.wall_ms, self._since_ms) < oldest_ms or len(self._known) > self._max
            if entry.left > 0 or not old:
                return
            del self._known[self._order.popleft()]

    def known(self) -> list[tuple[str, K]]:
        """What the journal is to know further on, in the order of positions."""
        self.forget()
        return list(self._known.items())


def remembered_of(known: Sequence[tuple[str, KnownId]]) -> list[RememberedRequest]:
    """What is known as the journal has it. A hundred thousand take 60 ms, in which this process
    would answer nobody: so it is called without a lock, and rests between them."""
    found: list[RememberedRequest] = []
    for begin in range(0, len(known), PIECE):
        if begin:
            time.sleep(REST_S)
        found += [
            RememberedRequest(id, each.digest, each.first, each.count, each.wall_ms, each.outcomes)
            for id, each in known[begin : begin + PIECE]
        ]
    return found
