"""The requests that a mailbox knows, and what is answered to whoever waits for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import numpy as np
from msgspec import field

from onyx.flow.batch import U64, Indices
from onyx.journal.chunk import Remembered
from onyx.ledger.outcomes import failure_text, outcomes_of, outcomes_of_value
from onyx.ledger.returns import OUTCOMES, Parts
from onyx.requests.request import Answer, Level, Status, answered

BUSY_RETRY_S = 0.2
Given = list[tuple[Future[Answer], Answer]]
"""Answers, each with the future of whoever waits for it."""


class Entry(msgspec.Struct):
    """A request that is known by its id."""

    id: str
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


def restored(remembered: Remembered) -> Entry:
    """A request that was in the journal when the partition was taken over."""
    judged = remembered.outcomes is not None
    entry = Entry(
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


def owners_of(entries: Sequence[Entry], positions: U64) -> Indices:
    """The request of each position, by its index among these, which are in the order of positions;
    -1 of one that is in none."""
    if not entries:
        return np.full(len(positions), -1, dtype=np.intp)
    at = positions.astype(np.int64)
    firsts = np.array([each.first for each in entries], dtype=np.int64)
    ends = np.array([each.end for each in entries], dtype=np.int64)
    owners: Indices = np.searchsorted(firsts, at, side="right") - 1
    return np.where(at < ends[owners], owners, -1)


def joined(entry: Entry, level: Level) -> Future[Answer]:
    """The answer to a request of this level that is this entry."""
    if level is Level.NONE:
        return answered(Answer(Status.ACCEPTED, segments=entry.count))
    future: Future[Answer] = Future()
    if level is Level.JOURNAL and entry.first < 0:
        entry.journalled.append(future)
    elif level is Level.JOURNAL:
        future.set_result(Answer(Status.JOURNALLED, segments=entry.count))
    elif entry.first >= 0 and entry.left <= 0 and entry.durable:
        future.set_result(processed(entry))
    else:
        entry.processed.append(future)
    return future


def remembered_of(entry: Entry) -> Remembered:
    """What the journal has of a request."""
    return Remembered(
        entry.id, entry.digest, entry.first, entry.count, entry.wall_ms, entry.outcomes
    )


def answered_by(entry: Entry) -> Given:
    """What those are answered who wait for the trees of a request."""
    waiting, entry.processed = entry.processed, []
    answer = processed(entry)
    return [(future, answer) for future in waiting]


def processed(entry: Entry) -> Answer:
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


def unavailable(reason: str, entries: Iterable[Entry]) -> Given:
    """Tell whoever waits for these to come again."""
    unavailable = Answer(Status.UNAVAILABLE, reason, BUSY_RETRY_S)
    found: Given = []
    for entry in entries:
        found += [(future, unavailable) for future in entry.journalled + entry.processed]
        entry.journalled, entry.processed = [], []
    return found


def answers_of(waiting: Iterable[Future[Answer]], status: Status, count: int) -> Given:
    """One answer for several who wait."""
    return [(future, Answer(status, segments=count)) for future in waiting]


def settle(answers: Given) -> None:
    """Give answers to those who still wait for them."""
    for future, answer in answers:
        if future.set_running_or_notify_cancel():
            future.set_result(answer)


def first_of(entry: Entry) -> int:
    """Position of its first segment."""
    return entry.first


def end_of(entry: Entry) -> int:
    """Behind its last position."""
    return entry.end
