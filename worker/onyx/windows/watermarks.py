"""Watermarks and epochs: what a task knows of event time and of what can still come, pure.

A *watermark* t on a channel says that what comes after it is, as far as its sender knows, not older
than t. A task's watermark is the minimum over its channels; those that are *idle* do not count, and
as long as one that is not idle has said nothing, the task says nothing. What is said never falls: a
channel that wakes up with a lower time holds the watermark where it is until it has caught up.
Leaving it out until then (as Flink does) was rejected: all that it has would come late.

An idle channel may have a time all the same, because its input follows the clock (`Lull`). Others
that are not idle do not hear of it. Where all are idle, event time comes to the latest of those.

An *epoch* n on a channel says that what was sent before it in epochs up to n has arrived. Inputs
count epochs by the time since the job was ready, so numbers agree between them without asking and
one that is slow skips some; a channel that says n has passed all numbers below. Each brings
frontiers: nothing below them is sent again, so once n has come on all channels nothing below them
can arrive any more, whatever way it took. A frontier that waits may wait for a later number instead
without harm, which is what bounds the memory when one channel is far behind.

In a window a shard has a watermark of its own (`ShardWatermarks`) where the segments are the
watermark, and where the state log says that it was further than the task is now: what was late
stays late, whatever peer has the shard.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Final, Literal

import msgspec

from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards
from onyx.keystate.records import Records, WatermarkReached, append

TIME_MS_MIN, TIME_MS_MAX = -(1 << 63), (1 << 63) - 1
"""Event times are signed 64-bit milliseconds."""
WAITING_EPOCHS_MAX = 16
"""Epochs that have not come on all channels yet, each with frontiers of its own."""


LULL_STEP_MAX_S = 1.0
"""Event time that follows the clock rises in steps of this or, if it is shorter, of the time after
which a partition is idle: each step is a message to all peers downstream."""
NOTHING_SEEN = float("-inf")


class Quiet(enum.Enum):
    """What a channel says where it has no time."""

    SILENT = "silent"
    """Nothing has been said yet: who waits for it must wait on."""
    IDLE = "idle"
    """Nobody need wait for this channel."""


SILENT: Final = Quiet.SILENT
IDLE: Final = Quiet.IDLE


class Lull(msgspec.Struct, frozen=True):
    """An idle channel whose event time follows the clock."""

    time_ms: int


Mark = int | Lull | Quiet
"""A time in milliseconds, or none."""
Said = int | Lull | Literal[Quiet.IDLE]
"""What is sent downstream."""


def time_of(mark: Mark) -> int | None:
    """The time that a mark has, if it has one."""
    if isinstance(mark, Lull):
        return mark.time_ms
    return mark if isinstance(mark, int) else None


def moved(mark: Mark, move: Callable[[int], int]) -> Mark:
    """A mark with another time, if it has one."""
    if isinstance(mark, Lull):
        return Lull(max(TIME_MS_MIN, move(mark.time_ms)))
    return max(TIME_MS_MIN, move(mark)) if isinstance(mark, int) else mark


def least(marks: Iterable[Mark]) -> Mark:
    """The minimum of all that are not idle, SILENT if one has said nothing. If all are idle, the
    latest that follows the clock, or IDLE if none does."""
    found: Mark = IDLE
    for mark in marks:
        if mark is SILENT:
            return SILENT
        if isinstance(mark, int):
            if not isinstance(found, int) or mark < found:
                found = mark
        elif isinstance(mark, Lull) and not isinstance(found, int):
            later = not isinstance(found, Lull) or mark.time_ms > found.time_ms
            found = mark if later else found
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
        if mark is not IDLE:
            mark = _not_before(self.time_ms, mark)
            self.time_ms = time_of(mark)
        if mark == self._said:
            return None
        self._said = mark
        return mark


def _not_before(time_ms: int | None, mark: int | Lull) -> int | Lull:
    """The mark, with this time if its own is lower."""
    if isinstance(mark, Lull):
        return mark if time_ms is None or mark.time_ms >= time_ms else Lull(time_ms)
    return mark if time_ms is None or mark >= time_ms else time_ms


class ChannelMarks:
    """The watermark of a task by those of its channels."""

    def __init__(self, channels: Iterable[Hashable]) -> None:
        self._marks: dict[Hashable, Mark] = dict.fromkeys(channels, SILENT)
        self._times: dict[Hashable, int] = {}

    def hear(self, channel: Hashable, said: Said) -> None:
        """News from a channel; a time that falls is taken as the one before."""
        if said is not IDLE:
            said = _not_before(self._times.get(channel), said)
            self._times[channel] = said.time_ms if isinstance(said, Lull) else said
        self._marks[channel] = said

    def said(self, channel: Hashable) -> Mark:
        """The last news from a channel."""
        return self._marks.get(channel, SILENT)

    @property
    def mark(self) -> Mark:
        """The least time of channels that are not idle."""
        return least(self._marks.values())


class PartitionMarks:
    """The watermark of an input peer by the times that its partitions have given.

    A partition is idle when it has given no time for `idle_timeout_s` (None: it never is). The
    timeout begins at the first read that brought none, so one that is not read because there is no
    room is not idle.

    Where event time follows the clock, it goes on from the moment at which a partition became idle,
    up to the last moment at which each one was asked and gave nothing. So a peer that has not read
    for a while, because the job was suspended, does not run ahead of what waits for it.
    """

    def __init__(
        self, disorder_ms: int, idle_timeout_s: float | None, follows_clock: bool = False
    ) -> None:
        """`follows_clock`: event time goes on when all partitions are idle."""
        assert disorder_ms >= 0
        assert idle_timeout_s is not None or not follows_clock
        self._disorder_ms = disorder_ms
        self._idle_timeout_s = idle_timeout_s
        self._follows_clock = follows_clock
        self._greatest: dict[int, int] = {}
        self._silent_since_s: dict[int, float] = {}
        self._asked_s: dict[int, float] = {}
        """When a silent partition was asked last."""
        self._come_to: dict[int, int] = {}
        """Where the clock had brought a partition in lulls before."""

    def saw(self, partition: int, time_ms: int) -> None:
        """The partition has given segments, the newest of this time."""
        if self._silent_since_s:
            self._wake(partition)
        self._greatest[partition] = max(time_ms, self._greatest.get(partition, time_ms))

    def saw_nothing(self, partition: int, now_s: float) -> None:
        """The partition was asked and gave nothing that has a time."""
        self._silent_since_s.setdefault(partition, now_s)
        self._asked_s[partition] = now_s

    def had_come_to(self, partition: int, time_ms: int) -> None:
        """Event time had come to this at whoever read the partition before. It counts only in a
        lull: until then segments are read again that are older."""
        self._come_to[partition] = max(time_ms, self._come_to.get(partition, time_ms))

    def ask_anew(self, *partitions: int) -> None:
        """None of these, or of all, is idle any more until it has been asked for as long again."""
        for partition in partitions or tuple(self._silent_since_s):
            self._wake(partition)

    def newest(self, partition: int) -> int | None:
        """The latest time of all that the partition has given; None if it has given none."""
        return self._greatest.get(partition)

    def come_to(self, partition: int) -> int | None:
        """Where event time has come in a partition by its segments or the clock; None: nowhere."""
        return self._in_lull(partition, self._asked_s.get(partition))

    def forget(self, partitions: Iterable[int]) -> None:
        """They belong to other peers now, and would start anew here."""
        for partition in partitions:
            for known in (self._greatest, self._silent_since_s, self._asked_s, self._come_to):
                known.pop(partition, None)

    def mark(self, active: Iterable[int], now_s: float) -> Mark:
        """By the partitions that are not exhausted."""
        active = tuple(active)
        found = least([self._of(partition, now_s) for partition in active])
        return self._lull(active) if self._follows_clock and found is IDLE else found

    def _of(self, partition: int, now_s: float) -> Mark:
        since_s = self._silent_since_s.get(partition)
        timeout_s = self._idle_timeout_s
        if since_s is not None and timeout_s is not None and now_s - since_s >= timeout_s:
            return IDLE
        time_ms = self.reached(partition)
        return SILENT if time_ms is None else time_ms

    def reached(self, partition: int) -> int | None:
        """Where event time has come in a partition by its segments; None: nowhere."""
        greatest = self._greatest.get(partition)
        return None if greatest is None else max(TIME_MS_MIN, greatest - self._disorder_ms)

    def _lull(self, idle: tuple[int, ...]) -> Mark:
        """All partitions are idle: the latest of them, by the clock."""
        asked_s = min((self._asked_s[partition] for partition in idle), default=None)
        found = (self._in_lull(partition, asked_s) for partition in idle)
        latest = max((time_ms for time_ms in found if time_ms is not None), default=None)
        return IDLE if latest is None else Lull(latest)

    def _in_lull(self, partition: int, asked_s: float | None) -> int | None:
        """Event time of a partition, where the clock counts since it became idle."""
        known = (self.reached(partition), self._come_to.get(partition))
        start_ms = max((each for each in known if each is not None), default=None)
        since_s, timeout_s = self._silent_since_s.get(partition), self._idle_timeout_s
        if start_ms is None or asked_s is None or since_s is None or timeout_s is None:
            return start_ms
        step_s = min(timeout_s, LULL_STEP_MAX_S)
        steps = max(0, int((asked_s - since_s - timeout_s) / step_s))
        return min(TIME_MS_MAX, start_ms + int(steps * step_s * 1_000))

    def _wake(self, partition: int) -> None:
        """It is not silent any more, but does not lose what the clock has brought."""
        if self._follows_clock:
            come_to = self._in_lull(partition, self._asked_s.get(partition))
            if come_to is not None:
                self._come_to[partition] = come_to
        self._silent_since_s.pop(partition, None)
        self._asked_s.pop(partition, None)


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


class ShardWatermarks:
    """Watermarks of one window on one peer."""

    def __init__(self, window: str, of_segments: bool, recorded: bool, shards: Shards) -> None:
        """
        Args:
            of_segments: whether the segments are the watermark, because nobody assigns one.
            recorded: whether it matters after a restart how far the watermark was.
        """
        self._window = window
        self._of_segments = of_segments
        self._recorded = recorded
        self._shards = shards
        self._changed = False
        self.task: Number = NOTHING_SEEN
        """The watermark that inputs have assigned."""
        self.own: dict[int, Number] = {}
        """Watermarks of shards that are ahead of the task's, or have their own."""

    def advance(self, watermark: Number) -> None:
        """The watermark that inputs have assigned has risen."""
        self.task = watermark
        self._changed = True
        if self.own and not self._of_segments:
            self.own = {shard: each for shard, each in self.own.items() if each > watermark}

    def rises(self, shard: int, coordinate: Number) -> bool:
        """Whether a segment at `coordinate` is the new watermark of its shard."""
        if coordinate <= self.own.get(shard, NOTHING_SEEN):
            return False
        self.own[shard] = coordinate
        self._changed = True
        return True

    def of(self, shard: int) -> Number:
        """The watermark of a shard, or NOTHING_SEEN."""
        own = self.own.get(shard, NOTHING_SEEN)
        return own if self._of_segments else max(own, self.task)

    def known(self, shard: int) -> Number | None:
        """The watermark for users' functions: None if nothing has been seen."""
        watermark = self.of(shard)
        return None if watermark == NOTHING_SEEN else watermark

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        if self._changed:
            self.snapshot(self._shards.known, records)
        self._changed = False

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the watermarks of some shards."""
        for shard in shards if self._recorded else ():
            watermark = self.of(shard)
            if watermark != NOTHING_SEEN:
                append(records, shard, WatermarkReached(self._window, watermark))

    def restore(self, shard: int, record: WatermarkReached) -> None:
        """Apply a record."""
        if record.watermark > self.of(shard):
            self.own[shard] = record.watermark

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        for shard in shards:
            self.own.pop(shard, None)
