"""Reading the partitions of an input in a task of Spark, each from its first segment to its end.

The reader of the plugin runs in the process that runs the tasks behind it, so that segments go from
one to the other without being moved through the JVM. A Python data source of Spark was rejected
for this: it needs a schema, and costs two conversions of every segment.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import structs
from msgspec.structs import replace

from onyx.errors import Unavailable
from onyx.flow.batch import Batch, Read, part_of_read, pieces_of
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.protocol import Cursor, Input
from onyx.plugins.starting import first_cursor
from onyx.program.bad_records import BadRecordFinder
from onyx.program.event_times import SourceTimes
from onyx.program.plugin_forms import segments_reader
from onyx.spark.driver.request import Position
from onyx.spark_query.programs import Query

DICTS_MAX = 2_048
COLUMNS_MAX = 65_536
"""Segments of a batch, where the task does not say how many."""
REST_S = 0.02
"""Before a source is asked again that has nothing now."""
BATCH_SEGMENTS_MAX = 200_000
"""The segments of a partition, in one micro-batch."""
BATCH_S = 5.0
"""Longest time that a partition is read for one micro-batch."""
NEWS_S = 0.3
"""How long a micro-batch waits for the first segments of a partition."""
TRIES_MAX = 5
"""The tries of a read that cannot be done now."""


class Partition:
    """A partition of an input."""

    def __init__(
        self, query: Query, plugin: Input, task: str, name: str, columns: bool = False
    ) -> None:
        """`columns`: the segments are wanted in columns, whatever the task says."""
        self._plugin = plugin
        self._name = name
        self.reached = Position(task, name)
        """How far a micro-batch has read."""
        entry = query.job.entry(task)
        self._columns = columns or entry.batch_format == "arrow"
        self._most = entry.batch_size or (COLUMNS_MAX if self._columns else DICTS_MAX)
        assigns = entry.watermark_key is not None or entry.assign_watermark_fn is not None
        needed = any(each.watermarks != "none" for each in query.plan.exchanges)
        self._times = SourceTimes(entry, query.resolve, query.clock) if assigns and needed else None
        self._bad = BadRecordFinder(entry, plugin, self._times)
        self._clock, self._idle_ms = query.clock, entry.idle_timeout

    @property
    def mark(self) -> int | None:
        """The watermark, by what was read until now."""
        mark = None if self._times is None else self._times.mark([0])
        return mark if isinstance(mark, int) else None

    @property
    def newest_ms(self) -> int | None:
        """The greatest event time that was read."""
        return None if self._times is None else self._times.newest_ms(0)

    def resume(self, start: Position) -> None:
        """Go on from a position: the watermark is what it was there."""
        self.reached = start
        if self._times is not None and start.newest_ms is not None:
            self._times.resume(0, start.newest_ms)

    def some(self) -> Iterator[list[Batch]]:
        """What there is now from `reached` on, up to a limit, read by read; then `reached` is
        behind it.

        Raises like `batches`.
        """
        start = self.reached
        cursor = Cursor(start.cursor, start.state)
        reader = segments_reader(self._plugin.open(self._name, cursor), self._columns)
        at, begun_s, waited_s, seen = start.cursor, time.monotonic(), 0.0, False
        most = start.position + BATCH_SEGMENTS_MAX
        try:
            while at < most and time.monotonic() - begun_s < BATCH_S:
                segments = reader.read(min(self._most, most - at))
                skipped = max(0, min(start.position - at, len(segments)))
                at += len(segments)
                if len(segments) > skipped:
                    waited_s = NEWS_S
                    fresh = part_of_read(segments, skipped, len(segments)) if skipped else segments
                    batches = self._batches(fresh, at - len(fresh))
                    seen |= self._bad.timed
                    yield batches
                elif not len(segments):
                    if reader.exhausted() or waited_s >= NEWS_S:
                        break
                    time.sleep(REST_S)
                    waited_s += REST_S
            cursor, ended = reader.cursor(at), reader.exhausted()
        finally:
            reader.close()
        reached = structs.replace(
            start, position=at, cursor=cursor.position, state=cursor.state, exhausted=ended
        )
        self.reached = reached if self._times is None else self._timed(reached, self._times, seen)

    def _timed(self, reached: Position, times: SourceTimes, seen: bool) -> Position:
        now_ms = self._clock.wall_ms()
        seen_ms = now_ms if seen else reached.seen_ms
        idle = self._idle_ms is not None and now_ms - seen_ms >= self._idle_ms
        newest_ms = times.newest_ms(0)
        return structs.replace(reached, newest_ms=newest_ms, seen_ms=seen_ms, idle=idle)

    def batches(self) -> Iterator[list[Batch]]:
        """All that the partition has, read by read: a batch of each form.

        Raises:
            Unavailable: it cannot be read, now or after several tries.
            UserError: it never can.
        """
        cursor = first_cursor(self._plugin, self._name)
        if cursor is None:
            return
        reader = segments_reader(self._plugin.open(self._name, cursor), self._columns)
        at, tries = cursor.position, 0
        try:
            while True:
                try:
                    segments = reader.read(self._most)
                except Unavailable:
                    tries += 1
                    if tries >= TRIES_MAX:
                        raise
                    time.sleep(REST_S * 2**tries)
                    continue
                tries = 0
                if len(segments):
                    yield self._batches(segments, at)
                    at += len(segments)
                elif reader.exhausted():
                    return
                else:
                    time.sleep(REST_S)
        finally:
            reader.close()

    def _batches(self, read: Read, first: int) -> list[Batch]:
        """What was read, from this position on: a batch of each form."""
        plugin, name = self._plugin, self._name
        bad = self._bad.among_new(0, read, lambda row: plugin.describe(name, first + row))
        return [
            Batch(segments, bad=its)
            for (_, segments), its in zip(pieces_of(read), bad, strict=True)
        ]


class Inputs:
    """The plugins of the inputs of one fragment, in one task of Spark."""

    def __init__(self, query: Query, examined: set[str]) -> None:
        """`examined`: gets the inputs of which every segment can travel."""
        self._query = query
        self._examined = examined
        self._opened: dict[str, Input] = {}

    def whole(self, task: str, name: str) -> Partition:
        """A partition that is read once, to its end."""
        if task not in self._opened:
            self._opened[task] = self._noted(task, self._query.plugins.input(task))
        return Partition(self._query, self._opened[task], task, name)

    def resumed(self, start: Position) -> Partition:
        """A partition that is read on from a position. Its plugin stays open for the next
        micro-batch."""
        plugin = self._noted(start.task, self._query.plugins.kept_input(start.task))
        partition = Partition(self._query, plugin, start.task, start.name)
        partition.resume(start)
        return partition

    def close(self) -> None:
        """Close what nobody reads from any more."""
        for plugin in self._opened.values():
            plugin.close()

    def _noted(self, task: str, plugin: Input) -> Input:
        if plugin.examined:
            self._examined.add(task)
        return plugin


@contextmanager
def partition_of_file(query: Query, task: str, path: str) -> Iterator[Partition]:
    """A file of the result of a Spark stage, as a partition that is read in columns."""
    context = replace(query.plugins.context(task), batch_format="arrow")
    files = FilesInput(context, FilesInputOptions(path=glob.escape(path), hive_partitioning=False))
    yield Partition(query, files, task, path, columns=True)
    files.close()
