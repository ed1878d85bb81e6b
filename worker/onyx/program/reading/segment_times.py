"""The event time of each segment that an input gives.

Times are taken from segments as the source gives them, before the task's function. What a
`watermarkKey` may hold is what the `windowKey` of a window over time may hold, for it is mostly the
same key.

A segment that has no time where it should has failed, like one for which a function raises: what
becomes of it is decided where it is for all failures. A segment in the place of a record that could
not be decoded (`onBadRecord: segment`) has no time, and nothing else is wrong with it here.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from onyx.errors import UserError, UserFunctionError, describe
from onyx.flow.batch import Segment, Segments, as_columns, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.dead_letters import repr_of
from onyx.flow.segment_failure import SegmentFailure
from onyx.model.job import CatalogEntry
from onyx.program.failure import code_line
from onyx.program.reading.column_times import Times, times_array, times_of
from onyx.program.reading.time_values import newest_alike, time_of


class SegmentTimes:
    """How the times of one input task are taken from its segments."""

    def __init__(self, entry: CatalogEntry, resolve: Callable[[str], Callable[..., Any]]) -> None:
        """
        Raises:
            NameNotRegistered: there is no such `assignWatermarkFn`.
        """
        if entry.assign_watermark_fn is not None:
            self._fn: Callable[[Any], Any] = resolve(entry.assign_watermark_fn)
        else:
            assert entry.watermark_key is not None, "only inputs that assign watermarks have times"
            self._fn = itemgetter(entry.watermark_key)
        self._fn_name = f"assignWatermarkFn {entry.assign_watermark_fn}"
        self._key = entry.watermark_key
        self._columns = entry.batch_format == "arrow"

    def of(self, segments: Segments) -> Times:
        """The newest time of these segments, and those that have none, or something that is none.
        The same segments always give the same."""
        if not len(segments):
            return None, []
        if self._key is None and self._columns:
            return self._assigned(segments)
        return format_of(segments).choose(self._of_dicts, self._of_columns)(segments)

    def _assigned(self, segments: Segments) -> Times:
        """What a function over columns gives for a batch; for dicts, those that columns hold."""
        columns, kept, failures = as_columns(segments)
        try:
            times = times_array(self._fn(columns.record_batch), len(columns))
            newest, wrong = times_of(times, self._time)
        except BaseException as error:
            newest, wrong = None, [(row, self._failure(error)) for row in range(len(columns))]
        if kept is not None:
            wrong = [(int(kept[row]), error) for row, error in wrong]
        wrong = sorted([*wrong, *failures], key=itemgetter(0))
        return newest, format_of(segments).choose(_without_stand_ins, _all_rows)(segments, wrong)

    def _of_columns(self, columns: Columns) -> Times:
        assert self._key is not None, "functions of dicts are for tasks of dicts"
        if not columns.has(self._key):
            return None, [(row, self._failure(KeyError())) for row in range(len(columns))]
        return times_of(columns.column(self._key), self._time)

    def _of_dicts(self, segments: list[Segment]) -> Times:
        try:
            values = list(map(self._fn, segments))
        except BaseException:
            values = []
        newest = newest_alike(values)
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
        time_ms = time_of(value)
        if time_ms is None:
            raise self._no_time(value)
        return time_ms

    def _no_time(self, value: Any) -> UserError:
        source = self._fn_name if self._key is None else f"watermarkKey {self._key!r}"
        return UserError(
            f"{source} gives {repr_of(value):.100}, which is no event time: it must be a number of "
            "milliseconds since 1970, a datetime, a date or ISO 8601 text; an assignWatermarkFn "
            "may work it out from the segment"
        )


def _without_stand_ins(
    segments: list[Segment], failures: list[SegmentFailure]
) -> list[SegmentFailure]:
    return [each for each in failures if not _stands_in(segments[each[0]])]


def _all_rows(columns: Columns, failures: list[SegmentFailure]) -> list[SegmentFailure]:
    """No row of columns is in the place of a record."""
    return failures


def _stands_in(segment: Segment) -> bool:
    """Whether a segment is in the place of a record that could not be decoded."""
    return "_error" in segment and "_raw" in segment
