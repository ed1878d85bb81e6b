"""Watermarks and epochs that one task receives and sends, in one allocation version.

Inputs send how far event time has come, and which positions never come again. A task between an
input and a windowed task passes both on, to all peers downstream, when it has them from all of its
own channels. Invariant: a new allocation version has new channels, on which nothing was received.
What a task had received before must not go further, because segments that came with it may be lost.

Watermarks go behind the batches that they follow from, `WATERMARK_INTERVAL_S` apart while there is
work, and at once when there is none. A windowed task withholds its own until what its triggers
emitted has been sent: it calls `release` with the mark that it had come to when it emitted.

Epochs are counted by the time since the job was ready, on the clock of each input peer. Frontiers
are sent only when they are stored: the next owner begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from onyx.ids import PeerId, TaskName
from onyx.model.job import Job
from onyx.model.workflow import children, stateful_tasks, topological_order
from onyx.task.channels.wiring import commits
from onyx.transport.interface import FRONTIERS_MAX, Control, ControlKind
from onyx.windows.watermarks import (
    IDLE,
    SILENT,
    ChannelEpochs,
    ChannelMarks,
    Lull,
    Mark,
    Rising,
    Said,
    merge,
    time_of,
)

WATERMARK_INTERVAL_S = 0.02
"""Between two watermarks on a channel while there is work: a wide job has many channels."""


class EventTimeNeeds(msgspec.Struct, frozen=True):
    """What a task or those downstream of it need to receive."""

    children: frozenset[TaskName]
    """The children that are windowed or have a windowed task downstream."""
    windowed: bool
    """Or an exactly-once output, which remembers ids as well; or a Spark stage, whose rows may have
    any times, so that no watermark goes past it."""
    watermarks: bool
    """Some input of the job assigns them."""
    epochs: bool
    """Repeats are recognized by ids, which are remembered until their epoch is over."""


def needs(job: Job, task: str) -> EventTimeNeeds | None:
    """None when neither the task nor one downstream has state that uses watermarks or epochs."""
    below = children(job.workflow)
    windowed = stateful_tasks(job)
    committing = {task for task in below if commits(job, task)}
    listening = {*windowed, *committing}
    for each in reversed(topological_order(job.workflow)):
        if listening.intersection(below[each]):
            listening.add(each)
    watermarks = any(entry.watermark_key or entry.assign_watermark_fn for entry in job.catalog)
    epochs = job.guarantee == "exactly-once"
    if task not in listening or not (watermarks or epochs):
        return None
    receiving = frozenset(TaskName(child) for child in below[task] if child in listening)
    remembers = task in windowed or task in committing
    holds = remembers or job.entry(task).stage is not None
    return EventTimeNeeds(receiving, holds, watermarks, epochs)


class InputOrigin(msgspec.Struct, frozen=True):
    """What an input peer knows by itself."""

    mark: Callable[[], Mark]
    frontiers: Callable[[], Mapping[int, int]]
    """The frontiers of all its partitions, as stored."""
    epoch_interval_s: float


class EventTime:
    """The event time of one task on one peer. Times are milliseconds since 1970, as the sources of
    the job have them."""

    def __init__(
        self, needed: EventTimeNeeds, channels: Iterable[PeerId], origin: InputOrigin | None = None
    ) -> None:
        channels = tuple(channels)
        self.children = needed.children
        self._needed = needed
        self._origin = origin
        self._marks = ChannelMarks(channels)
        self._epochs = ChannelEpochs(channels)
        self._own = Rising()
        self._received = False
        """Something that `_own` does not follow yet."""
        self._sent = Rising()
        self._released: Mark = SILENT
        self._next_watermark_s = 0.0
        self._arrived: dict[int, int] = {}
        self._to_send: dict[int, int] = {}
        self.passed: dict[int, int] = {}
        """Frontiers that were sent on: nothing below them may follow."""
        self._stored: Mapping[int, int] = {}
        self._begun_s: float | None = None
        self._epoch = 0

    # --- what windows use -------------------------------------------------------------------------

    @property
    def watermark(self) -> int | None:
        """Event time has come to this for the task, in milliseconds; None: not known yet. It
        rises only. Where windows were restored with a higher one, that is the one that holds."""
        if self._received:
            self._received = False
            self._own.follow(self._marks.mark)
        return self._own.time_ms

    def take_frontiers(self) -> dict[int, int]:
        """Partitions with the position below which nothing can arrive here any more, of the epochs
        that have been completed since this was asked last."""
        arrived, self._arrived = self._arrived, {}
        return arrived

    # --- what a windowed task sends besides -------------------------------------------------------

    @property
    def sent_ms(self) -> int | None:
        """The latest event time that was sent: those downstream have heard of no later one from
        here."""
        return self._sent.time_ms

    @property
    def mark(self) -> Mark:
        """Where the task is now, for `release`."""
        return self._origin.mark() if self._origin is not None else self._marks.mark

    def release(self, mark: Mark) -> None:
        """What came out of the task until it was at `mark` has been handed to the outbox."""
        self._released = mark

    def add_frontiers(self, frontiers: Mapping[int, int]) -> None:
        """Nothing below these positions of the task's own partitions is sent again: settled, and
        durably so. Sent with the next epoch."""
        merge(self._to_send, frontiers.items())

    # --- control items ----------------------------------------------------------------------------

    def receive(self, source: PeerId, control: Control) -> None:
        """A WATERMARK or EPOCH came, and everything that came before it has been worked on."""
        if control.kind is ControlKind.EPOCH:
            self._epochs.hear(source, control.epoch, control.frontiers)
            return
        self._marks.hear(source, said_by(control))
        self._received = True

    def due(self, now_s: float, idle: bool) -> Iterator[Control]:
        """Control items that are due now, behind everything that has been sent.

        Args:
            now_s: monotonic time.
            idle: there is nothing to do, so nothing is gained by waiting for more.
        """
        if self._needed.watermarks and (idle or now_s >= self._next_watermark_s):
            yield from self._watermark(now_s)
        if self._needed.epochs:
            yield from self._new_epoch(now_s)

    def _watermark(self, now_s: float) -> Iterator[Control]:
        mark = self.mark
        if self._origin is not None:
            self._own.follow(mark)
        risen = self._sent.follow(self._released if self._needed.windowed else mark)
        if risen is not None:
            self._next_watermark_s = now_s + WATERMARK_INTERVAL_S
            yield watermark(risen)

    def _new_epoch(self, now_s: float) -> Iterator[Control]:
        if self._origin is not None:
            epoch = self._count(now_s, self._origin.epoch_interval_s)
            if epoch == self._epoch:
                return
            self.rise(self._origin.frontiers())
        else:
            complete = self._epochs.take()
            if complete is None:
                return
            epoch, frontiers = complete
            merge(self._to_send, frontiers.items())
            if self._needed.windowed:
                merge(self._arrived, frontiers.items())
        self._epoch = epoch
        merge(self.passed, self._to_send.items())
        rising, self._to_send = tuple(sorted(self._to_send.items())), {}
        for start in range(0, max(1, len(rising)), FRONTIERS_MAX):
            part = rising[start : start + FRONTIERS_MAX]
            yield Control(ControlKind.EPOCH, epoch=epoch, frontiers=part)

    def rise(self, frontiers: Mapping[int, int]) -> None:
        """The stored frontiers of the task's own partitions: with the next epoch, those are sent
        that have risen."""
        known = self._stored
        merge(self._to_send, ((n, at) for n, at in frontiers.items() if at > known.get(n, 0)))
        self._stored = dict(frontiers)

    def _count(self, now_s: float, interval_s: float) -> int:
        if self._begun_s is None:
            self._begun_s = now_s
        return 1 + int((now_s - self._begun_s) / interval_s)


def watermark(said: Said) -> Control:
    """The item that says how far event time has come."""
    return Control(ControlKind.WATERMARK, time_ms=time_of(said), lull=isinstance(said, Lull))


def said_by(item: Control) -> Said:
    """What the item says."""
    if item.time_ms is None:
        return IDLE
    return Lull(item.time_ms) if item.lull else item.time_ms
