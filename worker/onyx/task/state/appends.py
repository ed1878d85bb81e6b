"""The chunk that is on its way to the state log, and what waits for it to be durable.

One at a time: while it is written the task goes on, so chunks grow with the load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import msgspec

from onyx.base.seams import Clock
from onyx.errors import Fenced, Unavailable
from onyx.keystate.records import Files
from onyx.state.chunks import Chunk
from onyx.state.collector import Collector
from onyx.state.log import StateLog
from onyx.task.state.chunks import Columns
from onyx.task.state.emissions import Taken

logger = logging.getLogger("onyx.task")

RETRY_INTERVAL_S = 1.0
"""Between two attempts to write a chunk."""


class Append(msgspec.Struct):
    """A chunk on its way."""

    values: list[Columns]
    """Roots and values to be acked when it is durable."""
    emitted: Taken
    settled: dict[int, int]
    """By shard, what nobody sends again then."""
    again: bool = False
    """Whether some of what it acks had been applied before."""
    unfinished: bool = False
    """Whether more is to be made of some of what it acks."""


class Appends:
    """Not thread-safe; the log is written on a thread of the pool."""

    def __init__(
        self,
        log: StateLog,
        background: Callable[[Callable[[], None]], Future[None]],
        clock: Clock,
    ) -> None:
        self._log = log
        self._background = background
        self._clock = clock
        self.obstacle = ""
        """Why the last chunk could not be written yet."""
        self.current: Append | None = None
        self._work: Callable[[], None]
        self._future: Future[None]
        self._whole = False
        """The chunk on its way is a snapshot."""
        self._collector = Collector(log, background)
        self._try_again_s = 0.0
        self._fenced = False
        """Another peer has fenced this log and taken over: nothing here counts any more."""

    @property
    def wants_snapshot(self) -> bool:
        """Whether the next chunk is to hold the whole state."""
        return self._log.wants_snapshot

    def begin(self, chunk: Chunk, files: Sequence[Files], append: Append) -> None:
        """Begin to write a chunk.

        Args:
            files: that belong to it.
        """
        assert self.current is None, "one chunk after the other"
        whole = self.wants_snapshot
        write = self._log.snapshot if whole else self._log.append

        def work() -> None:
            # Whoever finds the chunk finds its files: they are whole before it names them, and
            # those that it makes superfluous go only when it says so.
            for each in files:
                each.write()
            write(chunk)
            for each in files:
                each.remove()

        self.current, self._work, self._future = append, work, self._background(work)
        self._whole = whole

    def take_durable(self) -> Append | None:
        """The chunk that has become durable, once. Raises what appending a chunk has raised."""
        append = self.current
        if append is None or not self._future.done() or self._fenced:
            return None
        try:
            self._future.result()
        except Fenced:
            # `current` stays: no further chunk is begun, and nothing that waits is ever acked.
            self._fenced = True
            return None
        except Unavailable as error:
            self._again(error)
            return None
        self.current, self.obstacle = None, ""
        if self._whole:
            self._collector.begin()
        return append

    def _again(self, error: Unavailable) -> None:
        self.obstacle = str(error)
        now_s = self._clock.monotonic_s()
        if now_s >= self._try_again_s:
            logger.warning("the state log cannot be written, trying again: %s", error)
            self._try_again_s = now_s + RETRY_INTERVAL_S
            # The very same work: a chunk that was written, and of which only the answer was lost,
            # is found to be there with the same bytes.
            self._future = self._background(self._work)
