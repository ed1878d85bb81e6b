"""The event times that an input peer has read, and the watermark that follows from them.

Only segments that are read for the first time count (`segment_times` takes the time of each): what
is read again cannot lower a watermark, and must not raise it before its time.

After a re-allocation all that was in flight is sent again, and until that has been done a partition
has said nothing: tasks behind may have lost it, and their windows must not close before it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from onyx.base.seams import Clock
from onyx.flow.batch import Segments
from onyx.model.job import CatalogEntry
from onyx.program.reading.column_times import Times
from onyx.program.reading.segment_times import SegmentTimes
from onyx.windows.units import standard
from onyx.windows.watermarks import Mark, PartitionMarks


class SourceTimes:
    """The event times of all partitions that one peer of an input task reads, over all allocation
    versions."""

    def __init__(
        self, entry: CatalogEntry, resolve: Callable[[str], Callable[..., Any]], clock: Clock
    ) -> None:
        """
        Raises:
            NameNotRegistered: there is no such `assignWatermarkFn`.
        """
        timeout_s = entry.idle_timeout / 1000 if entry.idle_timeout is not None else None
        self.follows_clock = entry.when_idle == "clock"
        """Whether event time goes on in a lull."""
        disorder_ms = standard(entry.allowed_disorder)
        self._marks = PartitionMarks(disorder_ms, timeout_s, self.follows_clock)
        self._clock = clock
        self._times = SegmentTimes(entry, resolve)

    def read(self, partition: int, segments: Segments) -> Times:
        """A partition was asked for new segments and gave these, or none: take notice. Returns as
        `of`."""
        newest, failures = self.of(segments)
        if newest is None:
            self._marks.saw_nothing(partition, self._clock.monotonic_s())
        else:
            self._marks.saw(partition, newest)
        return newest, failures

    def of(self, segments: Segments) -> Times:
        """The newest time of these segments, and those that have none, or something that is none.
        The same segments always give the same."""
        return self._times.of(segments)

    def resume(self, partition: int, newest_ms: int) -> None:
        """A partition has given segments up to this time to whoever read it before."""
        self._marks.saw(partition, newest_ms)

    def newest_ms(self, partition: int) -> int | None:
        """The latest time of all that a partition has given; None if it has given none."""
        return self._marks.newest(partition)

    def had_come_to(self, partition: int, time_ms: int) -> None:
        """Event time had come to this in a partition that somebody else read before."""
        self._marks.had_come_to(partition, time_ms)

    def come_to(self, partition: int) -> int | None:
        """Where event time has come in a partition, by segments or the clock."""
        return self._marks.come_to(partition)

    def ask_anew(self) -> None:
        """The job was allocated anew: whether a partition is idle is found out again."""
        self._marks.ask_anew()

    def forget(self, partitions: Collection[int]) -> None:
        """Other peers have them now."""
        self._marks.forget(partitions)

    def mark(self, active: Iterable[int]) -> Mark:
        """The watermark, by the partitions that may still give something."""
        return self._marks.mark(active, self._clock.monotonic_s())
