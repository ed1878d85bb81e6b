"""Reading a partition of an input from its first segment to its end.

The reader of the plugin runs in the process that runs the tasks behind it, so that segments go from
one to the other without being moved through the JVM. A Python data source of Spark was rejected
for this: it needs a schema, and costs two conversions of every segment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from onyx.errors import Unavailable
from onyx.flow.batch import Segments
from onyx.plugins.protocol import START, Input
from onyx.spark.query.programs import Query
from onyx.task.source.event_times import SourceTimes
from onyx.task.source.segments_reader import segments_reader

DICTS_MAX = 2_048
COLUMNS_MAX = 65_536
"""Segments of a batch, where the task does not say how many."""
REST_S = 0.02
"""Before a source is asked again that has nothing now."""
TRIES_MAX = 5
"""Of a read that cannot be done now."""


class Partition:
    """A partition of an input."""

    def __init__(self, query: Query, plugin: Input, task: str, name: str) -> None:
        self._plugin = plugin
        self._name = name
        entry = query.job.entry(task)
        self._columns = entry.batch_format == "arrow"
        self._most = entry.batch_size or (COLUMNS_MAX if self._columns else DICTS_MAX)
        assigns = entry.watermark_key is not None or entry.assign_watermark_fn is not None
        needed = any(each.watermarks != "none" for each in query.plan.exchanges)
        self._times = SourceTimes(entry, query.resolve, query.clock) if assigns and needed else None

    @property
    def mark(self) -> int | None:
        """The watermark, by what was read until now."""
        mark = None if self._times is None else self._times.mark([0])
        return mark if isinstance(mark, int) else None

    def batches(self) -> Iterator[Segments]:
        """All that the partition has.

        Raises:
            Unavailable: it cannot be read, now or after several tries.
            UserError: it never can, or a segment has no event time.
        """
        reader = segments_reader(self._plugin.open(self._name, START), self._columns)
        tries = 0
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
                    if self._times is not None:
                        self._times.read(0, segments)
                    yield segments
                elif reader.exhausted():
                    return
                else:
                    time.sleep(REST_S)
        finally:
            reader.close()
