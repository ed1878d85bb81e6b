"""A queue in memory that gives messages at least once, for tests of live sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from onyx.errors import Unavailable
from onyx.plugins.sources.protocol import LiveSource, Portion


@dataclass
class MemoryQueue:
    """What a server keeps. Each message is a number."""

    waiting: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    """Given and not acked, in order."""
    acked: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    """Given back, in order."""
    terminated: dict[int, str] = field(default_factory=dict)
    """Not given again, and why."""
    rests: list[float] = field(default_factory=list)
    """How long each of `failed` was to rest."""
    kept: list[list[int]] = field(default_factory=list)
    """What was said to be worked on."""
    given: dict[int, int] = field(default_factory=dict)
    """How often each was given."""
    lease_s: float | None = None
    parts: int = 1
    """Segments of each message, which then have a number `part`."""
    down: Callable[[str], bool] = lambda what: False
    """Whether a call (`receive`, `ack`, `answer` of an ack) fails now."""
    ends: bool = False
    opened: int = 0

    def open(self, context: Any = None, partition: int = 0, cursor: Any = None) -> MemorySource:
        """A consumer, which is given first what the last one has not acked."""
        self.opened += 1
        return MemorySource(self)


class MemorySource(LiveSource):
    """A consumer, which gives again at once what has failed."""

    def __init__(self, queue: MemoryQueue, most: int = 3) -> None:
        self._queue = queue
        self._again = list(queue.pending)
        self._most = most
        self.closed = False

    def receive(self, wait_s: float) -> Portion | None:
        queue = self._queue
        if queue.down("receive"):
            raise Unavailable("the queue does not answer")
        source = self._again or queue.waiting
        numbers = source[: self._most]
        del source[: self._most]
        queue.pending += [each for each in numbers if each not in queue.pending]
        if not numbers:
            return None
        for n in numbers:
            queue.given[n] = queue.given.get(n, 0) + 1
        parts = queue.parts
        several = [{"n": n, "part": part} for n in numbers for part in range(parts)]
        return Portion(
            [{"n": n} for n in numbers] if parts == 1 else several,
            numbers,
            [f"m{n}" for n in numbers],
            [parts] * len(numbers),
            deliveries=[queue.given[n] for n in numbers],
        )

    def ack(self, handles: Sequence[Any]) -> None:
        if self._queue.down("ack"):
            raise Unavailable("the queue does not answer")
        for each in handles:
            if each in self._queue.pending:
                self._queue.pending.remove(each)
                self._queue.acked.append(each)
        if self._queue.down("answer"):
            raise Unavailable("the answer was lost")

    @property
    def lease_s(self) -> float | None:
        return self._queue.lease_s

    def fail(self, handles: Sequence[Any], after_s: float) -> None:
        if self._queue.down("fail"):
            raise Unavailable("the queue does not answer")
        self._queue.failed += handles
        self._queue.rests += [after_s] * len(handles)
        if after_s:
            self._again += handles

    def term(self, handles: Sequence[Any], reasons: Sequence[str]) -> None:
        self._queue.terminated.update(zip(handles, reasons, strict=True))
        self._queue.pending = [each for each in self._queue.pending if each not in handles]

    def working(self, handles: Sequence[Any]) -> None:
        if self._queue.down("working"):
            raise Unavailable("the queue does not answer")
        self._queue.kept.append(list(handles))

    def exhausted(self) -> bool:
        return self._queue.ends and not self._again and not self._queue.waiting

    def close(self) -> None:
        self.closed = True
