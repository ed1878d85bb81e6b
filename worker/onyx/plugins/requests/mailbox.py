"""The requests for one partition of an input, from their arrival to their answer.

A request waits until the writer of the journal takes it, then until its segments are durable, then
until their trees are complete. A request that comes again under its id joins the first one, so it
is answered when that is. Ids are remembered for a time and up to a number; those from before a
restart come from the journal.

Rejected: a future for each segment. A request of 10,000 segments is one range of positions, and
completions are counted into it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future

import msgspec
import numpy as np
from msgspec import field

from onyx.errors import OnyxError
from onyx.flow.batch import U64
from onyx.journal.chunk import Content, Remembered
from onyx.ledger.returns import Parts, put_together
from onyx.plugins.chunks import gathered
from onyx.plugins.journalled.ids import IdMemory
from onyx.requests.desk import MOVES
from onyx.requests.request import Answer, Level, Request, Status, answered
from onyx.seams import Clock
from onyx.telemetry.interface import TaskMetrics

WAITING_BYTES_MAX = 67_108_864
WAITING_REQUESTS_MAX = 10_000
"""Requests that wait for the journal; more are refused as BUSY."""
CHUNK_BYTES_MAX = 8_388_608
"""Requests that go into one chunk, unless one alone is larger."""
BUSY_RETRY_S = 0.2
HELD_RETRY_S = 1.0
DRAINS = "the job drains: it takes nothing new"


class _Entry(msgspec.Struct):
    """A request that is known by its id."""

    digest: bytes
    count: int
    wall_ms: int
    first: int = -1
    """Position of its first segment; -1 before it is in the journal."""
    left: int = 0
    """Segments whose trees are not complete."""
    journalled: list[Future[Answer]] = field(default_factory=list)
    """Wait for the journal."""
    processed: list[Future[Answer]] = field(default_factory=list)
    """Wait for the trees."""
    parts: Parts = field(default_factory=dict)
    """What functions give back for its segments."""
    restored: bool = False
    """Whether it was in the journal when the partition was taken over."""
    lost: bool = False
    """Whether some of its trees had been complete before, so that `parts` are not all."""

    @property
    def end(self) -> int:
        """Behind its last position."""
        return self.first + self.count


class Mailbox:
    """Safe from any thread. Futures are set outside the lock."""

    def __init__(
        self,
        clock: Clock,
        remembered: Iterable[Remembered] = (),
        remember_requests_max: int = 100_000,
        remember_ms: int = 3_600_000,
        tracked: bool = True,
    ) -> None:
        """
        Args:
            remembered: requests of before, in the order of their positions.
            remember_requests_max: ids that are remembered; those that are not processed always are.
            remember_ms: how long an id is remembered, in milliseconds.
            tracked: whether the job accounts for segments, so that `ack` can be answered.
        """
        self._clock = clock
        self._tracked = tracked
        self._changed = threading.Condition()
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._taken: dict[str, _Entry] = {}
        """What the writer has taken and not appended yet, with what waits."""
        self._known = IdMemory[_Entry](clock, remember_requests_max, remember_ms)
        """Everything in the journal, in the order of positions."""
        self._open: list[_Entry] = []
        """What is not complete of it, in the same order."""
        self._awaited: list[int] = []
        """Ends of requests whose trees somebody waits for, and outputs do not know it yet."""
        self._closed = ""
        """Why nothing is taken any more."""
        self._held = ""
        """Why nothing is taken now."""
        for each in remembered:
            entry = _Entry(
                each.digest, each.count, each.wall_ms, each.first, each.count, restored=True
            )
            self._known.add(each.id, entry)
            self._open.append(entry)

    # --- clients --------------------------------------------------------------------------------

    def offer(self, request: Request) -> Future[Answer]:
        """Take a request; the future has its answer."""
        if request.level is Level.ACK and not self._tracked:
            return answered(
                Answer(
                    Status.INVALID,
                    "the input is at-most-once, so nobody knows when a segment is processed: ask "
                    "for level journal",
                )
            )
        with self._changed:
            entry = self._known.get(request.id) or self._taken.get(request.id)
            if entry is not None:
                return self._again(request, entry)
            refusal = self._refusal(request)
            if refusal is not None:
                return answered(refusal)
            count = len(request.segments)
            entry = _Entry(request.digest, count, self._clock.wall_ms(), left=count)
            self._taken[request.id] = entry
            self._waiting.append(request)
            self._waiting_bytes += request.size_bytes
            self._changed.notify_all()
            return _joined(entry, request.level)

    def _refusal(self, request: Request) -> Answer | None:
        if self._closed:
            return Answer(Status.UNAVAILABLE, self._closed, BUSY_RETRY_S)
        if self._held:
            return Answer(Status.BUSY, self._held, HELD_RETRY_S)
        full = self._waiting_bytes + request.size_bytes > WAITING_BYTES_MAX
        if self._waiting and (full or len(self._waiting) >= WAITING_REQUESTS_MAX):
            reason = f"{len(self._waiting)} requests wait already for the journal of the input"
            return Answer(Status.BUSY, reason, BUSY_RETRY_S)
        return None

    def _again(self, request: Request, entry: _Entry) -> Future[Answer]:
        if entry.digest != request.digest:
            reason = f"request id {request.id!r} was used before, for other segments"
            return answered(Answer(Status.CONFLICT, reason))
        if self._closed and self._closed != DRAINS and entry.left:
            return answered(Answer(Status.UNAVAILABLE, self._closed, BUSY_RETRY_S))
        if request.level is Level.ACK and entry.first >= 0 and entry.left:
            self._awaited.append(entry.end)
        return _joined(entry, request.level)

    # --- the writer of the journal --------------------------------------------------------------

    def take(self, first: int, wait_s: float) -> Content | None:
        """The requests that go into one chunk; None: none came within `wait_s`.

        Args:
            first: position of the first segment.
        """
        with self._changed:
            if not self._waiting:
                self._changed.wait(wait_s)
            taken: list[Request] = []
            size_bytes = 0
            while self._waiting and (
                not taken or size_bytes + self._waiting[0].size_bytes <= CHUNK_BYTES_MAX
            ):
                taken.append(self._waiting.popleft())
                size_bytes += taken[-1].size_bytes
            self._waiting_bytes -= size_bytes
        if not taken:
            return None
        runs, requests = [], []
        for each in taken:
            entry = self._taken[each.id]
            requests.append(Remembered(each.id, each.digest, first, entry.count, entry.wall_ms))
            runs.append(each.segments)
            first += entry.count
        return Content(gathered(runs), tuple(requests))

    def appended(self, content: Content) -> None:
        """What was taken is durable."""
        answers: list[tuple[Future[Answer], Answer]] = []
        with self._changed:
            for each in content.requests:
                entry = self._taken.pop(each.id)
                entry.first = each.first
                self._known.add(each.id, entry)
                answers += _answers(entry.journalled, Status.JOURNALLED, entry.count)
                entry.journalled = []
                if entry.count and self._tracked:
                    self._open.append(entry)
                    if entry.processed:
                        self._awaited.append(entry.end)
                else:
                    entry.left = 0
                    answers += _answers(entry.processed, Status.PROCESSED, entry.count)
                    entry.processed = []
            self._known.forget()
        _settle(answers)

    def hold(self, reason: str) -> None:
        """Take nothing new for now; an empty reason takes it again."""
        self._held = reason

    # --- the input ------------------------------------------------------------------------------

    def acked(self, positions: U64) -> None:
        """The trees of these positions, which rise, have become complete."""
        answers: list[tuple[Future[Answer], Answer]] = []
        with self._changed:
            if not self._open or not len(positions):
                return
            firsts = np.array([each.first for each in self._open])
            owners = np.searchsorted(firsts, positions.astype(np.int64), side="right") - 1
            done = np.bincount(owners[owners >= 0], minlength=len(firsts))
            for number in np.flatnonzero(done).tolist():
                entry = self._open[number]
                entry.left -= int(done[number])
                answers += _complete(entry)
            self._open = [each for each in self._open if each.left > 0]
        _settle(answers)

    def returned(self, position: int, parts: Parts) -> None:
        """Functions give something back for a segment."""
        with self._changed:
            number = bisect_right(self._open, position, key=_first) - 1
            if number >= 0 and position < self._open[number].end:
                put_together(self._open[number].parts, parts.items())

    def awaited(self, position: int) -> bool:
        """Whether somebody waits for a request whose last segment is before this position, each
        time once."""
        if not self._awaited:
            return False
        with self._changed:
            count = len(self._awaited)
            self._awaited = [each for each in self._awaited if each > position]
            return len(self._awaited) < count

    def passed(self, position: int) -> None:
        """The trees of all positions before this one are complete."""
        answers: list[tuple[Future[Answer], Answer]] = []
        with self._changed:
            count = bisect_left(self._open, position + 1, key=_end)
            for entry in self._open[:count]:
                # A tree that has not been complete here was so at an owner of before.
                entry.lost = entry.restored and entry.left > 0
                entry.left = 0
                answers += _complete(entry)
            del self._open[:count]
        _settle(answers)

    def remembered(self) -> list[Remembered]:
        """Everything that the journal is to know further on, in the order of positions."""
        with self._changed:
            return self._known.remembered()

    def ended(self) -> bool:
        """Never: clients may always come."""
        return False

    def report(self, metrics: TaskMetrics) -> None:
        """Nothing is counted here."""

    def release(self) -> None:
        """Nothing is open."""

    @property
    def waiting(self) -> tuple[int, int]:
        """Requests that wait for the journal, and those whose trees are not complete."""
        return len(self._taken), len(self._open)

    def refuse(self) -> None:
        """Take nothing new any more, because the job drains. What the writer has is answered when
        it is processed."""
        with self._changed:
            self._closed = self._closed or DRAINS
            answers = _unavailable(DRAINS, [self._taken.pop(each.id) for each in self._waiting])
            self._waiting.clear()
            self._waiting_bytes = 0
            self._changed.notify_all()
        _settle(answers)

    def close(self, error: OnyxError | None) -> None:
        """Take nothing any more. Whoever waits is answered: what is in the journal will be
        processed, and the same request finds that out at the next owner."""
        reason = MOVES if error is None else f"the input has failed: {error}"
        with self._changed:
            self._closed = reason if self._closed in ("", DRAINS) else self._closed
            self._waiting.clear()
            answers = _unavailable(reason, (*self._taken.values(), *self._open))
            self._changed.notify_all()
        _settle(answers)


def _joined(entry: _Entry, level: Level) -> Future[Answer]:
    """The answer to a request of this level that is this entry."""
    if level is Level.NONE:
        return answered(Answer(Status.ACCEPTED, segments=entry.count))
    future: Future[Answer] = Future()
    if level is Level.JOURNAL and entry.first < 0:
        entry.journalled.append(future)
    elif level is Level.JOURNAL:
        future.set_result(Answer(Status.JOURNALLED, segments=entry.count))
    elif entry.first >= 0 and entry.left <= 0:
        future.set_result(_processed(entry))
    else:
        entry.processed.append(future)
    return future


def _complete(entry: _Entry) -> list[tuple[Future[Answer], Answer]]:
    if entry.left > 0:
        return []
    waiting, entry.processed = entry.processed, []
    answer = _processed(entry)
    return [(future, answer) for future in waiting]


def _processed(entry: _Entry) -> Answer:
    return Answer(Status.PROCESSED, segments=entry.count, parts=entry.parts, values_lost=entry.lost)


def _unavailable(reason: str, entries: Iterable[_Entry]) -> list[tuple[Future[Answer], Answer]]:
    """Tell whoever waits for these to come again."""
    unavailable = Answer(Status.UNAVAILABLE, reason, BUSY_RETRY_S)
    found: list[tuple[Future[Answer], Answer]] = []
    for entry in entries:
        found += [(future, unavailable) for future in entry.journalled + entry.processed]
        entry.journalled, entry.processed = [], []
    return found


def _answers(
    waiting: Iterable[Future[Answer]], status: Status, count: int
) -> list[tuple[Future[Answer], Answer]]:
    return [(future, Answer(status, segments=count)) for future in waiting]


def _settle(answers: Iterable[tuple[Future[Answer], Answer]]) -> None:
    """Give answers to those who still wait for them."""
    for future, answer in answers:
        if future.set_running_or_notify_cancel():
            future.set_result(answer)


def _first(entry: _Entry) -> int:
    return entry.first


def _end(entry: _Entry) -> int:
    return entry.end
