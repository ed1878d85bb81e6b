"""A partition that this process owns: a thread takes what its source, the *feed*, gives into the
journal.

What is durable is handed to the reader in memory, up to a limit; beyond it, the reader gets it from
the journal. So a task that lags costs no memory, and one that keeps up reads no file.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from onyx.errors import Fenced, OnyxError, Unavailable, contained
from onyx.flow.batch import Segments
from onyx.journal.journal import Journal
from onyx.journal.logs import Content, RememberedRequest
from onyx.plugins.protocol import AckedReader
from onyx.telemetry.interface import TaskMetrics

logger = logging.getLogger(__name__)
POLL_S = 0.5
"""How often the writer looks whether it is wanted while nothing comes."""
RETRY_S = 1.0
LOGGED_EVERY_S = 30.0
TAIL_SEGMENTS_MAX = 200_000
"""Segments that are held for the reader."""
CLOSE_TIMEOUT_S = 5.0


class Feed(AckedReader, Protocol):
    """A source without stable positions. The writer of the journal calls `take`, `judged`,
    `appended`, `hold`, `ended` and `release`; the task what an `AckedReader` has, `passed`,
    `report` and `refuse`; and whoever collects the journal `remembered`."""

    judges: bool
    """Whether `judged` ever has anything, which has to be written while the job drains too."""

    @property
    def unread(self) -> int | None:
        """Messages or segments that wait at the source, about; None: it does not say. From any
        thread."""
        ...

    def take(self, first: int, wait_s: float) -> Content | None:
        """What goes into the next chunk, whose first segment has this position; None: nothing came
        within `wait_s`. Raises Unavailable: try again later."""
        ...

    def judged(self, wait_s: float) -> Content | None:
        """What became of segments, without new ones; None: there was nothing within `wait_s`. It is
        written also where there is no room, because the frontier waits for it."""
        ...

    def appended(self, content: Content) -> None:
        """It is durable now: the source may forget it."""
        ...

    def hold(self, reason: str) -> None:
        """The journal cannot be written or has no room: why, or empty when it can be again."""
        ...

    def passed(self, position: int) -> None:
        """The trees of all positions before this one are complete."""
        ...

    def remembered(self) -> list[RememberedRequest]:
        """The requests that the journal is to know further on, in the order of positions."""
        ...

    def ended(self) -> bool:
        """Whether everything was taken and nothing will ever follow."""
        ...

    def report(self, metrics: TaskMetrics) -> None:
        """Count what has happened since the last time; called by the task."""
        ...

    def refuse(self) -> None:
        """The job drains: nothing new is taken, but what was given is processed."""
        ...

    def close(self, error: OnyxError | None) -> None:
        """Nothing is taken any more: the partition goes to another owner, or `error` ended it."""
        ...

    def release(self) -> None:
        """The writer has ended: close what it has used. Called by the writer."""
        ...


class JournalledPartition:
    """Owned by the input; `start` once, `close` once. Safe from any thread.

    Its thread, the writer, takes and appends (`_step`) until the job drains. Then it appends only
    what becomes of what is there (`_judge`), if the feed judges; else it ends.
    """

    def __init__(
        self,
        journal: Journal,
        feed: Feed,
        wake: Callable[[], None],
        journal_bytes_max: int,
        name: str,
    ) -> None:
        """`wake` is called when there is something to read."""
        self.journal = journal
        self.feed = feed
        self._wake = wake
        self._bytes_max = journal_bytes_max
        self._lock = threading.Lock()
        self._tail: deque[tuple[int, list[Segments]]] = deque()
        self._tail_segments = 0
        self.end = journal.end
        """Behind the last position that may be read: its feed knows of it."""
        self.exhausted = False
        """Whether the source has ended, and all of it is in the journal."""
        self.obstacle = ""
        """Why nothing is taken now. Read by any thread."""
        self._logged_s = -math.inf
        self._error: OnyxError | None = None
        self._stopped = threading.Event()
        self._draining = threading.Event()
        self._drained = threading.Event()
        """Nothing new is in the journal from now on."""
        self._thread = threading.Thread(target=self._run, name=f"onyx-journal-{name}", daemon=True)

    def start(self) -> None:
        """Begin to take what the source gives."""
        self._thread.start()

    def next_runs(self, position: int) -> tuple[int, list[Segments]] | None:
        """The chunk that has a position, handed over to the only caller; None: it is not durable
        yet. Raises what has ended the writer, and as `Journal.read`."""
        with self._lock:
            if self._error is not None:
                raise self._error
            while self._tail and self._tail[0][0] <= position:
                first, runs = self._tail.popleft()
                count = sum(map(len, runs))
                self._tail_segments -= count
                if position < first + count:
                    return first, runs
        return self.journal.read(position) if position < self.end else None

    def drain(self) -> bool:
        """Take nothing new; whether all that was taken is in the journal, or not taken after all.
        The thread goes on only if it has to write what becomes of what is there: after a crash the
        next owner would say otherwise."""
        if not self._draining.is_set():
            self.feed.refuse()
            self._draining.set()
            if not self.feed.judges:
                self._stopped.set()
        return self._drained.is_set()

    def close(self) -> None:
        """End the thread; what is in the journal stays there."""
        self._stopped.set()
        self.feed.close(self._error)
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set() and not self.exhausted:
                if self._draining.is_set():
                    self._has_drained()
                    self._judge(POLL_S)
                else:
                    self._step()
        except OnyxError as error:
            self._end(error)
        except BaseException as error:
            logger.exception("a bug in Onyx: please report it")
            self._end(Fenced(f"the journal cannot go on: {contained(error)}"))
        finally:
            self.feed.release()
            self._has_drained()

    def _has_drained(self) -> None:
        if not self._drained.is_set():
            self._drained.set()
            self._wake()

    def _judge(self, wait_s: float) -> bool:
        """Write what became of segments, which the frontier waits for; whether there was
        something."""
        judged = self.feed.judged(wait_s)
        if judged is None or not self._append(judged):
            return False
        self.feed.appended(judged)
        self._wake()
        return True

    def _step(self) -> None:
        if self.journal.size_bytes > self._bytes_max:
            self.obstacle = (
                f"the journal of the input holds {self.journal.size_bytes:,} bytes that are not "
                f"processed, of {self._bytes_max:,} that it may (journalBytesMax)"
            )
            self.feed.hold(self.obstacle)
            # What became of segments is written all the same: the frontier waits for it, and only
            # when that moves is there room again.
            if self._judge(0.0):
                return
            self._stopped.wait(RETRY_S / 10)
            if self.journal.size_bytes <= self._bytes_max:
                self._go_on()
            return
        try:
            content = self.feed.take(self.journal.end, POLL_S)
        except Unavailable as error:
            self._wait(f"the source cannot be read: {error}")
            return
        self.obstacle = ""
        if content is not None and self._append(content):
            self.feed.appended(content)
            self._publish(content)
        elif content is None and self.feed.ended():
            self.exhausted = True
            self._wake()

    def _append(self, content: Content) -> bool:
        """Until it is durable, or the partition is given away."""
        while True:
            try:
                self.journal.append(content)
            except Unavailable as error:
                self.feed.hold(f"the journal of the input cannot be written: {error}")
                if self._wait(f"the journal of the input cannot be written: {error}"):
                    return False
            else:
                self._go_on()
                return True

    def _wait(self, obstacle: str) -> bool:
        """Wait before the next try; whether the partition is given away meanwhile."""
        self.obstacle = obstacle
        now_s = time.monotonic()
        if now_s - self._logged_s >= LOGGED_EVERY_S:
            self._logged_s = now_s
            logger.warning("%s; it is tried again", obstacle)
        return self._stopped.wait(RETRY_S)

    def _go_on(self) -> None:
        self.obstacle = ""
        self.feed.hold("")

    def _publish(self, content: Content) -> None:
        count = content.count
        if not count:
            return
        with self._lock:
            self._tail.append((self.end, list(content.runs)))
            self._tail_segments += count
            self.end += count
            # The newest stays, however large: a reader that keeps up never reads a file.
            while self._tail_segments > TAIL_SEGMENTS_MAX and len(self._tail) > 1:
                _, runs = self._tail.popleft()
                self._tail_segments -= sum(map(len, runs))
        self._wake()

    def _end(self, error: OnyxError) -> None:
        with self._lock:
            self._error = error
        self.feed.close(error)
        self._wake()
