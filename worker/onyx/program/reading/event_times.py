"""The event times that an input peer has read, and the watermark that follows from them.

Times are taken from segments as the source gives them, before the task's function, and only from
those read for the first time: what is read again cannot lower a watermark, and must not raise it
before its time. What a `watermarkKey` may hold is what the `windowKey` of a window over time may
hold, for it is mostly the same key. A float is milliseconds too, not seconds: two units that
differ only by type or size would be mistaken for one another some day.

A segment that has no time where it should has failed, like one for which a function raises: what
becomes of it is decided where it is for all failures. A segment in the place of a record that could
not be decoded (`onBadRecord: segment`) has no time, and nothing else is wrong with it here.

After a re-allocation all that was in flight is sent again, and until that has been done a partition
has said nothing: tasks behind may have lost it, and their windows must not close before it comes.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter
from types import NoneType
from typing import Any

from onyx.errors import UserError, UserFunctionError, describe
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.flow.dead_letters import repr_of
from onyx.flow.segment import Segment
from onyx.flow.segment_failure import SegmentFailure
from onyx.model.job import CatalogEntry
from onyx.program.failure import code_line
from onyx.program.reading.column_times import Times, times_array, times_of
from onyx.seams import Clock
from onyx.windows.instants import milliseconds
from onyx.windows.units import standard
from onyx.windows.watermarks import TIME_MS_MAX, TIME_MS_MIN, Mark, PartitionMarks


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
        self._marks = PartitionMarks(standard(entry.allowed_disorder), timeout_s)
        self._clock = clock
        if entry.assign_watermark_fn is not None:
            self._fn: Callable[[Any], Any] = resolve(entry.assign_watermark_fn)
        else:
            assert entry.watermark_key is not None, "only inputs that assign watermarks have times"
            self._fn = itemgetter(entry.watermark_key)
        self._fn_name = f"assignWatermarkFn {entry.assign_watermark_fn}"
        self._key = entry.watermark_key
        self._columns = entry.batch_format == "arrow"

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
        if not len(segments):
            return None, []
        if self._key is None and self._columns:
            return self._assigned(segments)
        if isinstance(segments, Columns):
            assert self._key is not None, "functions of dicts are for tasks of dicts"
            if not segments.has(self._key):
                return None, [(row, self._failure(KeyError())) for row in range(len(segments))]
            return times_of(segments.column(self._key), self._time)
        return self._of_dicts(segments)

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

    def _assigned(self, segments: Segments) -> Times:
        """What a function over columns gives for a batch; for dicts, those that columns hold."""
        columns, kept, failures = (
            (segments, None, []) if isinstance(segments, Columns) else (from_dicts(segments))
        )
        try:
            times = times_array(self._fn(columns.record_batch), len(columns))
            newest, wrong = times_of(times, self._time)
        except BaseException as error:
            newest, wrong = None, [(row, self._failure(error)) for row in range(len(columns))]
        if kept is not None:
            wrong = [(int(kept[row]), error) for row, error in wrong]
        wrong = sorted([*wrong, *failures], key=itemgetter(0))
        if isinstance(segments, Columns):
            return newest, wrong
        return newest, [each for each in wrong if not _stands_in(segments[each[0]])]

    def _of_dicts(self, segments: Sequence[Segment]) -> Times:
        try:
            values = list(map(self._fn, segments))
        except BaseException:
            values = []
        newest = _newest_alike(values)
        if newest is not None:
            return self._time(newest), []
        times: list[int] = []
        failures: list[SegmentFailure] = []
        for row, segment in enumerate(segments):
            try:
                time = self._one(segment)
            except UserError as error:
                if not _stands_in(segment):
                    failures.append((row, error))
            else:
                if time is not None:
                    times.append(time)
        return max(times, default=None), failures

    def _one(self, segment: Segment) -> int | None:
        try:
            value = self._fn(segment)
        except BaseException as error:
            raise self._failure(error) from error
        return self._time(value) if value is not None else None

    def _failure(self, error: BaseException) -> UserError:
        if self._key is None:
            said = f"{self._fn_name} raised {describe(error)}{code_line(error)}"
            return UserFunctionError(said)
        return UserError(
            f"the segment has no {self._key!r}, the watermarkKey; where segments have no time let "
            "it be None, or use an assignWatermarkFn that gives None"
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
            f"{source} gives {repr_of(value):.100}, which is no event time: it must be a number of "
            "milliseconds since 1970, a datetime, a date or ISO 8601 text; an assignWatermarkFn "
            "may work it out from the segment"
        )


def _newest_alike(values: Sequence[Any]) -> Any:
    """The greatest of values that are all event times, and of one kind that compares as times do;
    None: they are to be looked at one by one."""
    kinds = set(map(type, values))
    if NoneType in kinds:
        values = [value for value in values if value is not None]
        kinds.discard(NoneType)
    if kinds == {int} or (kinds == {float} and all(map(math.isfinite, values))):
        least, greatest = min(values), max(values)
        return greatest if least >= TIME_MS_MIN and greatest <= TIME_MS_MAX else None
    if kinds == {datetime.datetime}:
        with contextlib.suppress(TypeError):  # only some have a time zone
            return max(values)
    return None


def _stands_in(segment: Segment) -> bool:
    """Whether a segment is in the place of a record that could not be decoded."""
    return "_error" in segment and "_raw" in segment
