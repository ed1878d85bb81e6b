"""The event times that an input peer has read, and the watermark that follows from them.

Times are taken from segments as the source gives them, before the task's function, and only from
those read for the first time: what is read again cannot lower a watermark, and must not raise it
before its time. What a `watermarkKey` may hold is what the `windowKey` of a window over time may
hold, for it is mostly the same key. A float is milliseconds too, not seconds: two units that
differ only by type or size would be mistaken for one another some day.

After a re-allocation all that was in flight is sent again, and until that has been done a partition
has said nothing: tasks behind may have lost it, and their windows must not close before it comes.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from onyx.errors import UserError, UserFunctionError, describe
from onyx.flow.batch import Segments
from onyx.flow.columns import Columns, from_dicts
from onyx.flow.segment import Segment
from onyx.model.job import CatalogEntry
from onyx.seams import Clock
from onyx.task.source.column_times import newest_time, times_array
from onyx.windows.instants import milliseconds
from onyx.windows.units import standard
from onyx.windows.watermarks import TIME_MS_MAX, TIME_MS_MIN, Mark, PartitionMarks


class SourceTimes:
    """Of all partitions that one peer of an input task reads, over all allocation versions."""

    def __init__(
        self, entry: CatalogEntry, resolve: Callable[[str], Callable[..., Any]], clock: Clock
    ) -> None:
        """
        Raises:
            NameNotRegistered: there is no such `assignWatermarkFn`.
        """
        timeout_s = entry.idle_timeout / 1000 if entry.idle_timeout is not None else None
        self._marks = PartitionMarks(standard(entry.allowed_disorder), timeout_s)
        self._clock = clock
        self._task = entry.name
        if entry.assign_watermark_fn is not None:
            self._fn: Callable[[Any], Any] = resolve(entry.assign_watermark_fn)
        else:
            assert entry.watermark_key is not None, "only inputs that assign watermarks have times"
            self._fn = itemgetter(entry.watermark_key)
        self._fn_name = f"assignWatermarkFn {entry.assign_watermark_fn}"
        self._key = entry.watermark_key
        self._columns = entry.batch_format == "arrow"

    def read(self, partition: int, segments: Segments) -> bool:
        """A partition was asked for new segments and gave these, or none; whether one has a time.

        Raises:
            UserError: one has no time, or something that is none.
        """
        newest = self._newest(segments) if len(segments) else None
        if newest is None:
            self._marks.saw_nothing(partition, self._clock.monotonic_s())
            return False
        self._marks.saw(partition, newest)
        return True

    def resume(self, partition: int, newest_ms: int) -> None:
        """A partition has given segments up to this time to whoever read it before."""
        self._marks.saw(partition, newest_ms)

    def newest_ms(self, partition: int) -> int | None:
        """The latest time of all that a partition has given; None if it has given none."""
        return self._marks.newest(partition)

    def forget(self, partitions: Collection[int]) -> None:
        """Other peers have them now."""
        self._marks.forget(partitions)

    def mark(self, active: Iterable[int]) -> Mark:
        """The watermark, by the partitions that may still give something."""
        return self._marks.mark(active, self._clock.monotonic_s())

    def _newest(self, segments: Segments) -> int | None:
        if self._key is None and self._columns:
            return newest_time(self._assigned(segments), self._time)
        if isinstance(segments, Columns):
            assert self._key is not None, "functions of dicts are for tasks of dicts"
            if not segments.has(self._key):
                raise self._failure(KeyError(self._key))
            return newest_time(segments.column(self._key), self._time)
        return self._newest_of(segments)

    def _assigned(self, segments: Segments) -> pa.Array:
        """What a function over columns gives for a batch, or for the part that columns hold."""
        columns = segments if isinstance(segments, Columns) else from_dicts(segments)[0]
        try:
            return times_array(self._fn(columns.record_batch))
        except BaseException as error:
            raise self._failure(error) from error

    def _newest_of(self, segments: Sequence[Segment]) -> int | None:
        try:
            newest = max(map(self._fn, segments))
        except BaseException:
            newest = None
        if newest is None or isinstance(newest, str):
            # Some have no time, or times that cannot be compared as they are, or there is an error.
            times = [time for segment in segments if (time := self._one(segment)) is not None]
            return max(times, default=None)
        return self._time(newest)

    def _one(self, segment: Segment) -> int | None:
        try:
            value = self._fn(segment)
        except BaseException as error:
            raise self._failure(error) from error
        return self._time(value) if value is not None else None

    def _failure(self, error: BaseException) -> UserError:
        if self._key is None:
            return UserFunctionError(f"task {self._task}: {self._fn_name} raised {describe(error)}")
        return UserError(
            f"task {self._task}: a segment has no {self._key!r}, its watermarkKey; where segments "
            "have no time let it be None, or use an assignWatermarkFn that gives None"
        )

    def _time(self, value: Any) -> int:
        time_ms: int | None = None
        if isinstance(value, int) and not isinstance(value, bool):
            time_ms = value
        elif isinstance(value, float) and math.isfinite(value):
            time_ms = math.floor(value)
        elif isinstance(value, datetime.date | str):
            with contextlib.suppress(ValueError):
                time_ms = milliseconds(value)
        if time_ms is None or not TIME_MS_MIN <= time_ms <= TIME_MS_MAX:
            raise self._no_time(value)
        return time_ms

    def _no_time(self, value: Any) -> UserError:
        source = self._fn_name if self._key is None else f"watermarkKey {self._key!r}"
        return UserError(
            f"task {self._task}: {source} gives {value!r:.100}, which is no event time: it must be "
            "a number of milliseconds since 1970, a datetime, a date or ISO 8601 text; an "
            "assignWatermarkFn may work it out from the segment"
        )
