"""A store with transactions, in memory, whose failures can be chosen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Segment
from onyx.ids import GroupId

T = TypeVar("T")

BEFORE = "before"
AFTER = "after"


class MemoryStore:
    """A `TransactionStore`. All stores of the same `rows` and `positions` are one database."""

    def __init__(self, database: MemoryStore | None = None) -> None:
        self.rows: list[Segment] = database.rows if database else []
        self.positions: dict[str, int] = database.positions if database else {}
        self._lock = database._lock if database else threading.Lock()
        self.faults: deque[str | None] = deque()
        """Of the calls that follow: whether each happens before it fails."""
        self.closed = False

    def check(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            if segment.get("bad"):
                raise UserError("key 'bad' has no column")

    def open(self, writer: str) -> None:
        self._faulty(lambda: self.positions.setdefault(writer, 0))

    def apply(self, writer: str, number: int, segments: list[Segment]) -> bool:
        def once() -> bool:
            come = self.positions.get(writer)
            if come is not None and come < number:
                self.positions[writer] = number
                self.rows += segments
            return come is not None

        return self._faulty(once)

    def fence(self, live: Sequence[GroupId]) -> None:
        def take_away() -> None:
            for writer in [*self.positions]:
                if writer.rpartition(".")[0] not in live:
                    del self.positions[writer]

        self._faulty(take_away)

    def forget(self, writer: str | None) -> None:
        def take_away() -> None:
            for each in [*self.positions]:
                if writer in (None, each):
                    del self.positions[each]

        self._faulty(take_away)

    def close(self) -> None:
        self.closed = True

    def _faulty(self, happen: Callable[[], T]) -> T:
        fault = self.faults.popleft() if self.faults else None
        if fault == BEFORE:
            raise Unavailable("no answer, and nothing happened")
        with self._lock:
            result = happen()
        if fault == AFTER:
            raise Unavailable("no answer, but it happened")
        return result
