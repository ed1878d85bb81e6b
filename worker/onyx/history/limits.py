"""What is old enough to be collected.

Entries carry no time, and no two clocks agree. So collectors note now and then how far the log was
at which time (`LogMark`), in a document beside the log. What stands at or before a mark is at least
as old as the mark: an age that is too small keeps something longer, and nothing else follows from a
clock that is wrong. What follows from the marks is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from onyx.base.structs import UNREADABLE
from onyx.ids import NO_POSITION, JobId, Position
from onyx.log.interface import LogReader
from onyx.replica.state import Replica
from onyx.settings import HistorySettings

NEAR = 1 / 8
"""Marks may be so much of their age apart: a few dozen are enough for weeks."""
CROWDED_ENTRIES_MAX, CROWDED_CHUNK_AGE_S = 64, 60.0
"""What is kept when there is little room; a chunk that is about to be named needs seconds."""
TRIM_ENTRIES_MIN = 256
"""Fewer entries are not worth a new origin."""
MARKS = "history/marks"
"""The document with the marks."""


class LogMark(NamedTuple):
    """How far the log was at a time of a collector's clock."""

    position: Position
    wall_ms: int


def marked(
    marks: Sequence[LogMark], position: Position, now_ms: int, settings: HistorySettings
) -> tuple[LogMark, ...]:
    """The marks, oldest first, with one of now, without those that others make superfluous."""
    longest_ms = now_ms - int(1000 * max(settings.age_s, settings.killed_age_s))
    kept = [LogMark(position, now_ms)]
    newest_first = sorted((m for m in marks if m.wall_ms < now_ms), key=lambda m: -m.wall_ms)
    for index, mark in enumerate(newest_first):
        later = kept[-1]
        if later.wall_ms <= longest_ms:
            break
        following = newest_first[index + 1] if index + 1 < len(newest_first) else None
        gap_ms = later.wall_ms - (following or mark).wall_ms
        if following is None or gap_ms > NEAR * (now_ms - later.wall_ms) or len(kept) == 1:
            kept.append(mark)
    return tuple(reversed(kept))


def older_than(marks: Sequence[LogMark], now_ms: int, age_s: float) -> Position:
    """The last entry that is certainly so old; NO_POSITION if none is."""
    old = (mark.position for mark in marks if mark.wall_ms <= now_ms - 1000 * age_s)
    return max(old, default=NO_POSITION)


def expired(
    replica: Replica,
    needed: Collection[JobId],
    marks: Sequence[LogMark],
    now_ms: int,
    settings: HistorySettings,
) -> tuple[JobId, ...]:
    """The ended jobs to forget: those that are too old, and the oldest of too many. Those that
    completed go first: a job that was killed may still be upgraded.

    Args:
        needed: jobs whose state others still have to carry over; none of them goes.
    """
    found: list[JobId] = []
    left: list[JobId] = []
    for jobs, age_s in (
        (replica.completed_jobs, settings.age_s),
        (replica.killed_jobs, settings.killed_age_s),
    ):
        limit = older_than(marks, now_ms, age_s)
        for job in jobs:
            if job in needed:
                continue
            record = replica.records.get(job)
            is_old = record is None or record.ended <= limit
            (found if is_old else left).append(job)
    return (*found, *left[: max(0, len(left) - settings.jobs_max)])


def crowded(replica: Replica, settings: HistorySettings) -> HistorySettings:
    """What is kept of the past in a tenancy that is half full: the newer half of the jobs that have
    ended, and little else. The next round halves them again if that is not enough."""
    ended = len(replica.completed_jobs) + len(replica.killed_jobs)
    return replace(
        settings,
        jobs_max=min(settings.jobs_max, ended // 2),
        entries_max=min(settings.entries_max, CROWDED_ENTRIES_MAX),
        chunk_age_s=min(settings.chunk_age_s, CROWDED_CHUNK_AGE_S),
    )


def trim_to(
    origin: Position,
    head: Position,
    marks: Sequence[LogMark],
    now_ms: int,
    settings: HistorySettings,
) -> Position | None:
    """The last entry to trim; None if the log stays as it is. A log that is too long is cut to half
    of its limit, since each cut reads what it removes."""
    if head - origin > settings.entries_max:
        return Position(head - settings.entries_max // 2)
    old = older_than(marks, now_ms, settings.age_s)
    return old if old - origin >= TRIM_ENTRIES_MIN else None


def noted_marks(
    log: LogReader, version: Position, now_ms: int, settings: HistorySettings
) -> Sequence[LogMark]:
    """The marks before now; one of now is noted, if the last one is not of just now.

    Args:
        version: how far the log is now.
    """
    document = log.get_document(MARKS)
    marks = [] if document is None else _marks(document.data)
    new = marked(marks, version, now_ms, settings)
    if not marks or new[-1].position > marks[-1].position:
        log.put_document(
            MARKS, msgspec.json.encode(new), None if document is None else document.version
        )
    return marks


def _marks(data: bytes) -> list[LogMark]:
    """None if they cannot be read: then everything counts as of now, and is kept for longer."""
    try:
        return [LogMark(Position(p), ms) for p, ms in msgspec.json.decode(data, type=list[LogMark])]
    except UNREADABLE:
        return []
