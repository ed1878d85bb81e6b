"""The event times of the segments that an input peer reads, and the watermark that follows from
them.

Times are taken from segments as the source gives them, before the task's function. What a
`watermarkKey` may hold is what the `windowKey` of a window over time may hold, for it is mostly the
same key. A float is milliseconds too, not seconds: two units that differ only by type or size would
be mistaken for one another some day. A column takes no step in Python for each row: text is parsed
as a whole, if all of it has one of the usual forms of ISO 8601. If not, what looks like that is,
and each other text once, by itself. So a few values that are no times cost little more than
themselves.

A segment that has no time where it should has failed, like one for which a function raises: what
becomes of it is decided where it is for all failures. A segment in the place of a record that could
not be decoded (`onBadRecord`) has no time, and nothing else is wrong with it here.

Only segments that are read for the first time count for the watermark: what is read again cannot
lower it, and must not raise it before its time. After a re-allocation all that was in flight is
sent again, and until that has been done a partition has said nothing: tasks behind may have lost
it, and their windows must not close before it comes.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.base.seams import Clock
from onyx.errors import UserError, UserFunctionError, describe
from onyx.flow.batch import Segment, Segments, as_columns, format_of
from onyx.flow.columns.compute import pc
from onyx.flow.columns.moments import is_within
from onyx.flow.columns.record_batch import Columns, shown_dicts
from onyx.flow.dead_letters import repr_of
from onyx.flow.instants import milliseconds, since_epoch
from onyx.flow.segment import SegmentFailure, stands_in
from onyx.model.job import CatalogEntry
from onyx.program.failure import code_line
from onyx.windows.units import standard
from onyx.windows.watermarks import TIME_MS_MAX, TIME_MS_MIN, Mark, PartitionMarks

US_A_MS = 1_000

MS_A_DAY = 86_400_000

_MOMENTS = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))

_USUAL = (
    r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$",
    r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?$",
)
"""Text of one of these forms is mostly cast as a whole: with a time zone, and without."""

_INT64_MAX = 2**63 - 1

Times = tuple[int | None, list[SegmentFailure]]
"""The newest time, in milliseconds since 1970, and the rows that have none although they have a
value; None: no row has a time."""


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

    def reached(self, partition: int) -> int | None:
        """Where event time has come in a partition, by segments alone."""
        return self._marks.reached(partition)

    def ask_anew(self, *partitions: int) -> None:
        """The job was allocated anew, or these wait for others: whether a partition is idle is
        found out again."""
        self._marks.ask_anew(*partitions)

    def forget(self, partitions: Collection[int]) -> None:
        """Other peers have them now."""
        self._marks.forget(partitions)

    def mark(self, active: Iterable[int]) -> Mark:
        """The watermark, by the partitions that may still give something."""
        return self._marks.mark(active, self._clock.monotonic_s())


# --- of segments --------------------------------------------------------------------------------


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
                if not stands_in(segment):
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
    return [each for each in failures if not stands_in(segments[each[0]])]


def _all_rows(columns: Columns, failures: list[SegmentFailure]) -> list[SegmentFailure]:
    """No row of columns is in the place of a record."""
    return failures


# --- of columns ---------------------------------------------------------------------------------


def times_of(column: pa.Array, time_of: Callable[[Any], int]) -> Times:
    """The times of a column of a usual type; a null is no time, and nothing is wrong with that.

    Args:
        time_of: one value as a time; raises UserError for what is none.
    """
    if column.null_count == len(column):
        return None, []
    kind = column.type
    if kinds.is_timestamp(kind):
        return _greatest(column.cast(pa.int64())) // US_A_MS, []
    if kinds.is_date32(kind):
        return _greatest(column.cast(pa.int32())) * MS_A_DAY, []
    if kinds.is_string(kind):
        return _of_text(column, time_of)
    if kinds.is_integer(kind):
        return _of_numbers(column, _beyond(column), time_of)
    if kinds.is_floating(kind):
        odd = pc.or_(pc.invert(pc.is_finite(column)), pc.greater_equal(pc.abs(column), 2.0**63))
        return _of_numbers(column, odd, time_of)
    return _each(column, time_of)


def times_array(found: Any, rows: int) -> pa.Array:
    """What a user's function gives for the rows of a batch, as a column.

    Raises:
        TypeError, ValueError, UserError: it is none, or has another length.
    """
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    array = found if isinstance(found, pa.Array) else pa.array(found)
    if len(array) != rows:
        raise UserError(f"gives {len(array)} times for {rows} rows: one for each row, or null")
    return Columns.of(pa.RecordBatch.from_arrays([array], ["time"])).column("time")


def _of_text(column: pa.Array, time_of: Callable[[Any], int]) -> Times:
    newest = _cast(column)
    if newest is not None:
        return newest, []
    left = pc.is_valid(column)
    found: list[int] = []
    for form in _USUAL:
        usual = pc.and_(left, pc.match_substring_regex(column, form).fill_null(False))
        newest = _cast(column.filter(usual)) if pc.any(usual).as_py() else None
        if newest is not None:
            found.append(newest)
            left = pc.and_not(left, usual)
    newest, failures = _each(pc.if_else(left, column, None), time_of)
    return max([*found, *([] if newest is None else [newest])], default=None), failures


def _cast(column: pa.Array) -> int | None:
    """The newest of text that has one usual form; None if it has not."""
    for kind in _MOMENTS:
        with contextlib.suppress(pa.ArrowInvalid):
            return _greatest(column.cast(kind).cast(pa.int64())) // US_A_MS
    return None


def _of_numbers(column: pa.Array, odd: pa.Array, time_of: Callable[[Any], int]) -> Times:
    if not pc.any(odd).as_py():
        return time_of(_greatest(column)), []
    good = column.filter(pc.invert(odd.fill_null(False)))
    newest = time_of(_greatest(good)) if good.null_count < len(good) else None
    return newest, list(_failures(column, odd, time_of))


def _failures(
    column: pa.Array, odd: pa.Array, time_of: Callable[[Any], int]
) -> Iterator[SegmentFailure]:
    for row in np.flatnonzero(odd.fill_null(False).to_numpy(zero_copy_only=False)).tolist():
        try:
            time_of(column[row].as_py())
        except UserError as error:
            yield row, error


def _each(column: pa.Array, time_of: Callable[[Any], int]) -> Times:
    """Value by value; the same text once."""
    newest: int | None = None
    failures: list[SegmentFailure] = []
    known: dict[str, int | UserError] = {}
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    alone = Columns(pa.RecordBatch.from_arrays([column.take(pa.array(rows))], ["time"]))
    for row, shown in zip(rows.tolist(), shown_dicts(alone), strict=True):
        value = shown["time"]
        time = known.get(value) if isinstance(value, str) else None
        if time is None:
            time = _one(value, time_of)
            if isinstance(value, str):
                known[value] = time
        if isinstance(time, UserError):
            failures.append((row, time))
        else:
            newest = time if newest is None else max(newest, time)
    return newest, failures


def _one(value: Any, time_of: Callable[[Any], int]) -> int | UserError:
    try:
        return time_of(value)
    except UserError as error:
        return error


def _beyond(column: pa.Array) -> pa.Array:
    """Which integers are no times: of unsigned ones those beyond 63 bits."""
    if not kinds.is_uint64(column.type) or is_within(column, 0, _INT64_MAX):
        return pa.repeat(False, len(column))
    return pc.greater(column, pa.scalar(_INT64_MAX, pa.uint64()))


def _greatest(column: pa.Array) -> int:
    """The greatest of numbers; a column of floats has a float."""
    found: int = pc.max(column).as_py()
    return found


# --- of values ----------------------------------------------------------------------------------


def time_of(value: Any) -> int | None:
    """The time that a value stands for, in milliseconds since 1970; None: none."""
    time_ms: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        time_ms = value
    elif isinstance(value, float) and math.isfinite(value):
        time_ms = math.floor(value)
    elif isinstance(value, datetime.date | str):
        with contextlib.suppress(ValueError):
            time_ms = milliseconds(value)
    if time_ms is None or not TIME_MS_MIN <= time_ms <= TIME_MS_MAX:
        return None
    return time_ms


def newest_alike(values: Sequence[Any]) -> Any:
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
        in_utc = all(value.tzinfo is datetime.UTC for value in values)
        return max(values, key=None if in_utc else since_epoch)
    return None
