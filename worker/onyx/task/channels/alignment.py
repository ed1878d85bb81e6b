"""Inputs of a job wait for each other in event time (`maxDrift`).

Each peer of an input says to all others how far it has read, by the watermark items that go
downstream too, from inbox to inbox: every task has one, and a link has room for them. So nobody
gathers, an item is of its allocation version, and nothing is said for each segment. A peer says
what is new at most `SENT_PER_S_MAX` times a second, over all others, so one of a wide job says it
less often. What was said last is below what is true: who hears late waits longer, and reads no
further.

A partition that is ahead of the least by more than the drift is not asked for anything new. Those
that are idle or have ended do not count. *The least is never held*, for it is not ahead of itself;
nor is one that has no time yet, which may be the least. Until that has said something, all that
have a time wait, as windows behind them do. A partition that waits cannot become idle. One that is
to stop, because the job comes to rest, is read up to there: somebody waits for that.

Rejected: the log, which would have an entry for each step; a coordinator, as in Flink, one more hop
between two peers that often run in the same process; holding segments back in front of tasks, where
they would have to be kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from onyx.ids import PeerId, TaskName
from onyx.model.job import Job
from onyx.task.channels.event_time import said_by, watermark
from onyx.task.channels.wiring import Wiring
from onyx.transport.interface import Channel, Control, Delivery, Transport
from onyx.windows.units import standard
from onyx.windows.watermarks import SILENT, TIME_MS_MIN, Mark, least

SENT_PER_S_MAX = 1_000
"""Items of one peer, to all others together."""

HEARD_AT_ONCE_MAX = 10_000


def is_aligned(job: Job, task: str) -> bool:
    """Whether an input waits for others, and others for it: it says what time its segments have."""
    entry = job.entry(task)
    assigns = entry.watermark_key is not None or entry.assign_watermark_fn is not None
    return job.max_drift is not None and entry.type == "input" and assigns


def alignment(transport: Transport, wiring: Wiring, job: Job) -> Alignment | None:
    """How a peer takes part in its allocation version; None if it does not."""
    if job.max_drift is None or not is_aligned(job, wiring.task):
        return None
    return Alignment(transport, wiring, job, standard(job.max_drift))


class Alignment:
    """One peer of an input among those of the job that wait for each other, in one allocation
    version."""

    def __init__(self, transport: Transport, wiring: Wiring, job: Job, drift_ms: int) -> None:
        self._transport = transport
        self._drift_ms = drift_ms
        self._me = wiring.me.peer
        self._others = [
            (site.group, Channel(wiring.job, wiring.version, wiring.me.peer, site.peer), task)
            for task, sites in wiring.sources
            if is_aligned(job, task)
            for site in sites
            if site != wiring.me
        ]
        self._tasks: dict[PeerId, TaskName] = {wiring.me.peer: wiring.task}
        self._tasks |= {channel.target: task for _, channel, task in self._others}
        self._marks: dict[PeerId, Mark] = dict.fromkeys(self._tasks, SILENT)
        self._said: Mark = SILENT
        self._behind = self._others[:0]
        self._next_s = 0.0

    def hear(self, deliveries: Iterable[Delivery]) -> None:
        """Other peers have said how far they are."""
        for delivery in deliveries:
            if isinstance(delivery.item, Control):
                self._marks[delivery.channel.source] = said_by(delivery.item)

    def most_ms(self, own: Mark) -> int | None:
        """Partitions beyond this time are to wait, when this peer is at `own`; None: none is."""
        self._marks[self._me] = own
        found = least(self._marks.values())
        if found is SILENT:
            return TIME_MS_MIN - 1
        return found + self._drift_ms if isinstance(found, int) else None

    def say(self, own: Mark, now_s: float) -> None:
        """Say to all others how far this peer is, if that is new and it is time."""
        if own is SILENT:
            return
        if own != self._said and now_s >= self._next_s:
            self._next_s = now_s + len(self._others) / SENT_PER_S_MAX
            self._said, self._behind = own, self._others
        item = watermark(self._said) if self._said is not SILENT else None
        if item is not None and self._behind:
            self._behind = [
                other for other in self._behind if not self._transport.send(*other[:2], item)
            ]

    def waits_for(self, held_ms: int) -> tuple[TaskName, int | None]:
        """The input for which a partition at this time waits, and by how much it is ahead in
        milliseconds; None while that input has no time. From any thread."""
        marks = dict(self._marks)
        for peer, mark in marks.items():
            if mark is SILENT:
                return self._tasks[peer], None
        times = [(mark, peer) for peer, mark in marks.items() if isinstance(mark, int)]
        time_ms, slowest = min(times, default=(held_ms, self._me))
        return self._tasks[slowest], held_ms - time_ms
