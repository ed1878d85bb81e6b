"""The requests for one partition of an input, from their arrival to their answer.

A request waits until the writer of the journal takes it, then until its segments are durable, then
until their trees are complete. A request that comes again under its id joins the first one, so it
is answered when that is. Ids are remembered for a time and up to a number; those from before a
restart come from the journal.

Where segments have failed for good, the request is *judged*: when its trees are complete, what
became of it goes into the journal, and only then is it answered. So it has the same answer at the
next owner. Until then the frontier stops at the first segment that has failed (`settled`), because
what is below it counts as processed.

Rejected: a future for each segment. A request of 10,000 segments is one range of positions, and
completions are counted into it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import field

from onyx.base.seams import Clock
from onyx.errors import OnyxError
from onyx.flow.batch import U64
from onyx.journal.logs import Content, RememberedRequest
from onyx.ledger.outcomes import (
    FailedSegment,
    Outcomes,
    failure_text,
    outcomes_of,
    outcomes_of_value,
)
from onyx.ledger.returns import OUTCOMES, RETRIED, Parts, put_together
from onyx.plugins.journalled.id_memory import IdMemory, remembered_of
from onyx.plugins.segment_runs import gathered
from onyx.requests.mailboxes import MOVES
from onyx.requests.request import Answer, Level, Request, Status, answered
from onyx.telemetry.interface import TaskMetrics

WAITING_BYTES_MAX = 67_108_864
WAITING_REQUESTS_MAX = 10_000
"""Requests that wait for the journal; more are refused as BUSY."""
CHUNK_BYTES_MAX = 8_388_608
"""Requests that go into one chunk, unless one alone is larger."""
HELD_RETRY_S = 1.0
BUSY_RETRY_S = 0.2
DRAINS = "the job drains: it takes nothing new"
GIVEN_UP = "it failed or was lost, and retryMode: none does not read it again"
SettledAnswers = list[tuple[Future[Answer], Answer]]
"""Answers, each with the future of whoever waits for it."""


class KnownRequest(msgspec.Struct):
    """A request that is known by its id."""

    id: str
    digest: bytes
    count: int
    wall_ms: int
    first: int = -1
    """Position of its first segment; -1 before it is in the journal."""
    left: int = 0
    """Segments whose trees are not complete."""
    journalled: tuple[Future[Answer], ...] = ()
    """Wait for the journal. A tuple: the garbage collector looks through lists, also through empty
    ones, and a hundred thousand requests are remembered."""
    processed: tuple[Future[Answer], ...] = ()
    """Wait for the trees."""
    parts: Parts = field(default_factory=dict)
    """What functions give back for its segments, and what is said of them."""
    retried: str = ""
    """Why a segment was to be read again, the last one."""
    outcomes: list[Any] | None = None
    """Where segments have failed for good and all trees are complete, what became of it."""
    durable: bool = True
    """Whether the journal has that."""
    restored: bool = False
    """Whether it was in the journal when the partition was taken over."""
    lost: bool = False
    """Whether some of its trees had been complete before, so that `parts` are not all."""

    @property
    def end(self) -> int:
        """Behind its last position."""
        return self.first + self.count


class RequestQueue:
    """Feed of a journal (`journalled.partition.Feed`) and mailbox of its partition
    (`requests.mailboxes.Mailbox`). Safe from any thread. Futures are set outside the lock."""

    judges = True

    def __init__(
        self,
        clock: Clock,
        remembered: Iterable[RememberedRequest] = (),
        remember_requests_max: int = 100_000,
        remember_ms: int = 3_600_000,
        tracked: bool = True,
        task: str = "",
    ) -> None:
        """
        Args:
            remembered: requests of before, in the order of their positions.
            remember_requests_max: ids that are remembered; those that are not processed always are.
            remember_ms: how long an id is remembered, in milliseconds.
            tracked: whether the job accounts for segments, so that `ack` can be answered.
            task: the input.
        """
        self._task = task
        self._clock = clock
        self._tracked = tracked
        self._changed = threading.Condition()
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._taken: dict[str, KnownRequest] = {}
        """What the writer has taken and not appended yet, with what waits."""
        self._known = IdMemory[KnownRequest](clock, remember_requests_max, remember_ms)
        """Everything in the journal, in the order of positions."""
        self._open: list[KnownRequest] = []
        """What is not complete of it, in the same order."""
        self._awaited: list[int] = []
        """Ends of requests whose trees somebody waits for, and outputs do not know it yet."""
        self._closed = ""
        """Why nothing is taken any more."""
        self._held = ""
        """Why nothing is taken now."""
        self._judged: list[KnownRequest] = []
        """Complete, and the writer is still to take what became of them."""
        self._undurable: dict[str, KnownRequest] = {}
        """By id, those of which the journal does not have it yet."""
        self._failed_at: dict[str, int] = {}
        """By id, the first position that has failed of a request, until the journal knows it."""
        for each in remembered:
            entry = restored(each)
            self._known.add(each.id, entry)
            if entry.left:
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
            wall_ms = self._clock.wall_ms()
            entry = KnownRequest(request.id, request.digest, count, wall_ms, left=count)
            self._taken[request.id] = entry
            self._waiting.append(request)
            self._waiting_bytes += request.size_bytes
            self._changed.notify_all()
            return joined(entry, request.level)

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

    def _again(self, request: Request, entry: KnownRequest) -> Future[Answer]:
        if entry.digest != request.digest:
            reason = f"request id {request.id!r} was used before, for other segments"
            return answered(Answer(Status.CONFLICT, reason))
        if not self._writes and (entry.left or not entry.durable):
            return answered(Answer(Status.UNAVAILABLE, self._closed, BUSY_RETRY_S))
        if request.level is Level.ACK and entry.first >= 0 and entry.left:
            self._awaited.append(entry.end)
        return joined(entry, request.level)

    def obstacle(self, id: str) -> str:
        """Why a request is not answered yet, as far as that is known here."""
        entry = self._known.get(id)
        if entry is None or not entry.left or not entry.retried:
            return ""
        return f"a segment of it is read again because of {entry.retried}"

    # --- the writer of the journal --------------------------------------------------------------

    def take(self, first: int, wait_s: float) -> Content | None:
        """The requests that go into one chunk; None: none came within `wait_s`.

        Args:
            first: position of the first segment.
        """
        with self._changed:
            if not self._waiting and not self._judged:
                self._changed.wait(wait_s)
            judged = self._take_judged()
            taken: list[Request] = []
            size_bytes = 0
            while self._waiting and (
                not taken or size_bytes + self._waiting[0].size_bytes <= CHUNK_BYTES_MAX
            ):
                taken.append(self._waiting.popleft())
                size_bytes += taken[-1].size_bytes
            self._waiting_bytes -= size_bytes
        if not taken and not judged:
            return None
        runs, requests = [], judged
        for each in taken:
            entry = self._taken[each.id]
            requests.append(
                RememberedRequest(each.id, each.digest, first, entry.count, entry.wall_ms)
            )
            runs.append(each.segments)
            first += entry.count
        return Content(gathered(runs), tuple(requests))

    def judged(self, wait_s: float) -> Content | None:
        """What became of requests in which segments have failed."""
        with self._changed:
            if not self._judged and self._writes:
                self._changed.wait(wait_s)
            judged = self._take_judged()
        return Content((), tuple(judged)) if judged else None

    def _take_judged(self) -> list[RememberedRequest]:
        judged, self._judged = self._judged, []
        return remembered_of([(each.id, each) for each in judged])

    def appended(self, content: Content) -> None:
        """What was taken is durable."""
        answers: SettledAnswers = []
        with self._changed:
            for each in content.requests:
                if each.outcomes is not None:
                    answers += self._judgement_is_durable(each)
                    continue
                entry = self._taken.pop(each.id)
                entry.first = each.first
                self._known.add(each.id, entry)
                answers += answers_of(entry.journalled, Status.JOURNALLED, entry.count)
                entry.journalled = ()
                if entry.count and self._tracked:
                    assert not self._open or self._open[-1].end <= entry.first, "in order"
                    self._open.append(entry)
                    if entry.processed:
                        self._awaited.append(entry.end)
                else:
                    entry.left = 0
                    answers += answers_of(entry.processed, Status.PROCESSED, entry.count)
                    entry.processed = ()
            self._known.forget()
        settle(answers)

    def _judgement_is_durable(self, each: RememberedRequest) -> SettledAnswers:
        self._failed_at.pop(each.id, None)
        entry = self._undurable.pop(each.id, None)
        return [] if entry is None else self._durable(entry)

    def _durable(self, entry: KnownRequest) -> SettledAnswers:
        entry.durable = True
        return answered_by(entry)

    def hold(self, reason: str) -> None:
        """Take nothing new for now; an empty reason takes it again."""
        self._held = reason

    # --- the input ------------------------------------------------------------------------------

    def acked(self, positions: U64) -> None:
        """The trees of these positions, which rise, have become complete."""
        answers: SettledAnswers = []
        with self._changed:
            complete = []
            for number, count in self._open_among(positions):
                entry = self._open[number]
                entry.left -= count
                if entry.left <= 0:
                    answers += self._complete(entry)
                    complete.append(number)
            for number in reversed(complete):
                del self._open[number]
        settle(answers)

    def _open_among(self, positions: U64) -> Iterator[tuple[int, int]]:
        """The open requests, by index, that have some of these positions, which rise, and how many
        of them. What is in none is passed over."""
        left, number = positions.astype(np.int64), 0
        while len(left):
            number = bisect_right(self._open, int(left[0]), lo=number, key=attrgetter("end"))
            if number == len(self._open):
                return
            entry = self._open[number]
            before, until = left.searchsorted((entry.first, entry.end)).tolist()
            if before < until:
                yield number, until - before
            left = left[until:]

    def returned(self, position: int, parts: Parts) -> None:
        """Functions give something back for a segment, or something is said of it."""
        with self._changed:
            entry = self._at(position)
            if entry is None:
                return
            retried, outcomes = parts.get(RETRIED), parts.get(OUTCOMES)
            if retried is not None:
                entry.retried = retried.value
                return
            if outcomes is not None:
                of_segment = outcomes_of(outcomes).at(position - entry.first)
                parts = {**parts, OUTCOMES: of_segment.part()}
                if of_segment.final_failures:
                    self._has_failed(entry, position)
            put_together(entry.parts, parts.items())

    def given_up(self, positions: U64) -> None:
        """These segments have failed or were lost, and are not read again."""
        with self._changed:
            for position in positions.tolist():
                entry = self._at(position)
                if entry is not None:
                    why = entry.retried or GIVEN_UP
                    failed = FailedSegment(self._task, why, position - entry.first)
                    outcomes = Outcomes(given_up=1, first_error=why, failures=(failed,))
                    put_together(entry.parts, [(OUTCOMES, outcomes.part())])
                    self._has_failed(entry, position)
        self.acked(positions)

    def _has_failed(self, entry: KnownRequest, position: int) -> None:
        if self._writes:
            self._failed_at[entry.id] = min(position, self._failed_at.get(entry.id, position))

    def settled(self, position: int) -> int:
        """How far the frontier may go: the next owner takes what that has passed for processed."""
        if not self._failed_at:
            return position
        with self._changed:
            return min([position, *self._failed_at.values()])

    def _complete(self, entry: KnownRequest) -> SettledAnswers:
        """The answers to a request whose trees are complete; not before they are durable, where
        segments have failed."""
        if entry.left > 0:
            return []
        if entry.id in self._failed_at and self._writes:
            entry.outcomes = outcomes_of(entry.parts[OUTCOMES]).short()
            entry.durable = False
            self._judged.append(entry)
            self._undurable[entry.id] = entry
            self._changed.notify_all()
            return []
        return answered_by(entry)

    def _at(self, position: int) -> KnownRequest | None:
        number = bisect_right(self._open, position, key=attrgetter("first")) - 1
        if number < 0 or position >= self._open[number].end:
            return None
        return self._open[number]

    def sent_again(self, positions: U64) -> None:
        """These segments are sent again: outputs are to make them durable for whoever waits."""
        with self._changed:
            for number, _ in self._open_among(positions):
                if self._open[number].processed:
                    self._awaited.append(self._open[number].end)

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
        answers: SettledAnswers = []
        with self._changed:
            count = bisect_left(self._open, position + 1, key=attrgetter("end"))
            for entry in self._open[:count]:
                # A tree that has not been complete here was so at an owner of before.
                entry.lost = entry.restored and entry.left > 0
                entry.left = 0
                answers += self._complete(entry)
            del self._open[:count]
        settle(answers)

    # --- the partition ----------------------------------------------------------------------------

    def remembered(self) -> list[RememberedRequest]:
        """Everything that the journal is to know further on, in the order of positions."""
        with self._changed:
            known = self._known.known()
        return remembered_of(known)

    def ended(self) -> bool:
        """Never: clients may always come."""
        return False

    def report(self, metrics: TaskMetrics) -> None:
        """Nothing is counted here."""

    def release(self) -> None:
        """Nothing is open."""

    @property
    def unread(self) -> int:
        """Segments of requests that are not in the journal yet."""
        with self._changed:
            return sum(len(each.segments) for each in self._waiting)

    @property
    def waiting(self) -> tuple[int, int]:
        """Requests that wait for the journal, and those whose trees are not complete."""
        return len(self._taken), len(self._open)

    def refuse(self) -> None:
        """Take nothing new any more, because the job drains. What the writer has is answered when
        it is processed."""
        with self._changed:
            self._closed = self._closed or DRAINS
            answers = unavailable(DRAINS, [self._taken.pop(each.id) for each in self._waiting])
            self._waiting.clear()
            self._waiting_bytes = 0
            self._changed.notify_all()
        settle(answers)

    def close(self, error: OnyxError | None) -> None:
        """Take nothing any more. Whoever waits is answered: what is in the journal will be
        processed, and the same request finds that out at the next owner."""
        reason = MOVES if error is None else f"the input has failed: {error}"
        with self._changed:
            self._closed = reason if self._writes else self._closed
            self._waiting.clear()
            entries = (*self._taken.values(), *self._open, *self._undurable.values())
            answers = unavailable(reason, entries)
            self._changed.notify_all()
        settle(answers)

    @property
    def _writes(self) -> bool:
        """Whether the writer of the journal takes what becomes of requests."""
        return self._closed in ("", DRAINS)


def restored(remembered: RememberedRequest) -> KnownRequest:
    """A request that was in the journal when the partition was taken over. Unless segments of it
    have failed, that does not say what is processed: it is open until the frontier `passed` it."""
    judged = remembered.outcomes is not None
    entry = KnownRequest(
        remembered.id,
        remembered.digest,
        remembered.count,
        remembered.wall_ms,
        remembered.first,
        0 if judged else remembered.count,
        restored=True,
        lost=judged,
    )
    if judged:
        entry.outcomes = remembered.outcomes
        entry.parts[OUTCOMES] = outcomes_of_value(remembered.outcomes).part()
    return entry


def joined(entry: KnownRequest, level: Level) -> Future[Answer]:
    """The answer to a request of this level that is this entry."""
    if level is Level.NONE:
        return answered(Answer(Status.ACCEPTED, segments=entry.count))
    future: Future[Answer] = Future()
    if level is Level.JOURNAL and entry.first < 0:
        entry.journalled += (future,)
    elif level is Level.JOURNAL:
        future.set_result(Answer(Status.JOURNALLED, segments=entry.count))
    elif entry.first >= 0 and entry.left <= 0 and entry.durable:
        future.set_result(processed(entry))
    else:
        entry.processed += (future,)
    return future


def answered_by(entry: KnownRequest) -> SettledAnswers:
    """What those are answered who wait for the trees of a request."""
    waiting, entry.processed = entry.processed, ()
    answer = processed(entry)
    return [(future, answer) for future in waiting]


def processed(entry: KnownRequest) -> Answer:
    parts = {key: part for key, part in entry.parts.items() if key != OUTCOMES}
    outcomes = outcomes_of(entry.parts.get(OUTCOMES))
    return Answer(
        Status.FAILED if outcomes.final_failures else Status.PROCESSED,
        failure_text(outcomes) if outcomes.final_failures else "",
        segments=entry.count,
        parts=parts,
        values_lost=entry.lost,
        outcomes=outcomes,
    )


def unavailable(reason: str, entries: Iterable[KnownRequest]) -> SettledAnswers:
    """Tell whoever waits for these to come again."""
    unavailable = Answer(Status.UNAVAILABLE, reason, BUSY_RETRY_S)
    found: SettledAnswers = []
    for entry in entries:
        found += [(future, unavailable) for future in entry.journalled + entry.processed]
        entry.journalled, entry.processed = (), ()
    return found


def answers_of(waiting: Iterable[Future[Answer]], status: Status, count: int) -> SettledAnswers:
    """One answer for several who wait."""
    return [(future, Answer(status, segments=count)) for future in waiting]


def settle(answers: SettledAnswers) -> None:
    """Give answers to those who still wait for them."""
    for future, answer in answers:
        if future.set_running_or_notify_cancel():
            future.set_result(answer)
