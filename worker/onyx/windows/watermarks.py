"""Watermarks and epochs: what a task knows of event time and of what can still come, pure.

A *watermark* t on a channel says that what comes after it is, as far as its sender knows, not older
than t. A task's watermark is the minimum over its channels; those that are *idle* do not count, and
as long as one that is not idle has said nothing, the task says nothing. What is said never falls: a
channel that wakes up with a lower time holds the watermark where it is until it has caught up.
Leaving it out until then (as Flink does) was rejected: all that it has would come late.

An *epoch* n on a channel says that what was sent before it in epochs up to n has arrived. Inputs
count epochs by the time since the job was ready, so numbers agree between them without asking and
one that is slow skips some; a channel that says n has passed all numbers below. Each brings
frontiers: nothing below them is sent again, so once n has come on all channels nothing below them
can arrive any more, whatever way it took. A frontier that waits may wait for a later number instead
without harm, which is what bounds the memory when one channel is far behind.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Literal

TIME_MS_MIN, TIME_MS_MAX = -(1 << 63), (1 << 63) - 1
"""Event times are signed 64-bit milliseconds."""
WAITING_EPOCHS_MAX = 16
"""Epochs that have not come on all channels yet, each with frontiers of its own."""


class Quiet(enum.Enum):
    """What a channel says where it has no time."""

    SILENT = "silent"
    """Nothing has been said yet: who waits for it must wait on."""
    IDLE = "idle"
    """Nobody need wait for this channel."""


SILENT: Final = Quiet.SILENT
IDLE: Final = Quiet.IDLE
Mark = int | Quiet
"""A time in milliseconds, or none."""
Said = int | Literal[Quiet.IDLE]
"""What is sent downstream."""


def least(marks: Iterable[Mark]) -> Mark:
    """The minimum of all that are not idle: IDLE if all are, SILENT if one has said nothing."""
    found: Mark = IDLE
    for mark in marks:
        if mark is SILENT:
            return SILENT
        if isinstance(mark, int) and (not isinstance(found, int) or mark < found):
            found = mark
    return found


class Rising:
    """The watermark that a task sends downstream: its times never fall. After IDLE the last time
    may be sent again, because a channel that wakes up holds the watermark back at least there."""

    def __init__(self) -> None:
        self.time_ms: int | None = None
        """The greatest time so far."""
        self._said: Mark = SILENT

    def follow(self, mark: Mark) -> Said | None:
        """What to send now that the watermark is `mark`; None when nothing has changed."""
        if mark is SILENT:
            return None
        if isinstance(mark, int):
            if self.time_ms is None or mark > self.time_ms:
                self.time_ms = mark
            mark = self.time_ms
        if mark == self._said:
            return None
        self._said = mark
        return IDLE if mark is IDLE else self.time_ms


class ChannelMarks:
    """The watermark of a task by those of its channels."""

    def __init__(self, channels: Iterable[Hashable]) -> None:
        self._marks: dict[Hashable, Mark] = dict.fromkeys(channels, SILENT)
        self._times: dict[Hashable, int] = {}

    def hear(self, channel: Hashable, said: Said) -> None:
        """News from a channel; a time that falls is taken as the one before."""
        if isinstance(said, int):
            said = self._times[channel] = max(said, self._times.get(channel, said))
        self._marks[channel] = said

    @property
    def mark(self) -> Mark:
        """The least time of channels that are not idle."""
        return least(self._marks.values())


class PartitionMarks:
    """The watermark of an input peer by the times that its partitions have given.

    A partition is idle when it has given no time for `idle_timeout_s` (None: it never is). The
    timeout begins at the first read that brought none, so one that is not read because there is no
    room is not idle.
    """

    def __init__(self, disorder_ms: int, idle_timeout_s: float | None) -> None:
        assert disorder_ms >= 0
        self._disorder_ms = disorder_ms
        self._idle_timeout_s = idle_timeout_s
        self._greatest: dict[int, int] = {}
        self._silent_since_s: dict[int, float] = {}

    def saw(self, partition: int, time_ms: int) -> None:
        """The partition has given segments, the newest of this time."""
        self._silent_since_s.pop(partition, None)
        self._greatest[partition] = max(time_ms, self._greatest.get(partition, time_ms))

    def saw_nothing(self, partition: int, now_s: float) -> None:
        """The partition was asked and gave nothing that has a time."""
        self._silent_since_s.setdefault(partition, now_s)

    def newest(self, partition: int) -> int | None:
        """The latest time of all that the partition has given; None if it has given none."""
        return self._greatest.get(partition)

    def forget(self, partitions: Iterable[int]) -> None:
        """They belong to other peers now, and would start anew here."""
        for partition in partitions:
            self._greatest.pop(partition, None)
            self._silent_since_s.pop(partition, None)

    def mark(self, active: Iterable[int], now_s: float) -> Mark:
        """By the partitions that are not exhausted."""
        return least(self._of(partition, now_s) for partition in active)

    def _of(self, partition: int, now_s: float) -> Mark:
        since_s = self._silent_since_s.get(partition)
        timeout_s = self._idle_timeout_s
        if since_s is not None and timeout_s is not None and now_s - since_s >= timeout_s:
            return IDLE
        greatest = self._greatest.get(partition)
        return SILENT if greatest is None else max(TIME_MS_MIN, greatest - self._disorder_ms)


def merge(into: dict[int, int], frontiers: Iterable[tuple[int, int]]) -> None:
    """Let frontiers rise."""
    for partition, position in frontiers:
        if position > into.get(partition, -1):
            into[partition] = position


class ChannelEpochs:
    """Which epochs have come on all channels of a task, and the frontiers that came with them."""

    def __init__(self, channels: Iterable[Hashable]) -> None:
        self._newest: dict[Hashable, int] = dict.fromkeys(channels, 0)
        self._waiting: dict[int, dict[int, int]] = {}
        self._complete = 0

    def hear(self, channel: Hashable, epoch: int, frontiers: Iterable[tuple[int, int]]) -> None:
        """News from a channel. An epoch may come in several parts, and numbers may be skipped."""
        epoch = self._newest[channel] = max(epoch, self._newest[channel])
        merge(self._waiting.setdefault(epoch, {}), frontiers)
        if len(self._waiting) > WAITING_EPOCHS_MAX:
            *_, before, last = sorted(self._waiting)
            merge(self._waiting[last], self._waiting.pop(before).items())

    def take(self) -> tuple[int, Mapping[int, int]] | None:
        """The newest epoch that has come on all channels, with the frontiers of all up to it, once;
        None when there is no new one."""
        reached = min(self._newest.values(), default=0)
        if reached <= self._complete:
            return None
        self._complete = reached
        frontiers: dict[int, int] = {}
        for epoch in sorted(each for each in self._waiting if each <= reached):
            merge(frontiers, self._waiting.pop(epoch).items())
        return reached, frontiers
