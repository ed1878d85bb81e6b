"""Input `generator`: computed segments, counted or without end, as fast as possible or at a rate.

Segment n is the same each time it is computed, so any position can be read again. The rate limits
new positions only; a replay is not limited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onyx.base.seams import Clock
from onyx.errors import OnyxError
from onyx.flow.leaves import result_columns
from onyx.flow.segment import Segment
from onyx.ledger.token_bucket import TokenBucket
from onyx.plugins.bases import IndexedColumnsReader, IndexedReader, partition_names
from onyx.plugins.options import function_error, task_error
from onyx.plugins.protocol import Behind, Cursor, Input, PluginContext, Reader
from onyx.plugins.small_options import GeneratorOptions
from onyx.plugins.starting import check_partitions, read_start


class GeneratorInput(Input):
    """Deals the numbers 0, 1, 2, ... to its partitions in turn."""

    cooperative = True

    def __init__(self, context: PluginContext, options: GeneratorOptions) -> None:
        self._context = context
        self._fn = context.resolve(options.fn) if options.fn else None
        self._options = options
        self._names = partition_names(options.partitions)
        self._start = read_start(options.start_from)
        self._rates: dict[str, Rate] = {}

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        check_partitions(self._context, self._start, self._names)
        return self._names

    def start(self, partition: str) -> Cursor:
        """The position that `startFrom` says."""
        return Cursor(self._start.position(partition))

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader whose position p is number `p * partitions + partition`."""
        count, number = self._options.partitions, self._names.index(partition)
        size = self._size(partition)
        allow = self._allowance(partition, cursor.position)

        def numbers(first: int, segments_max: int) -> range:
            wanted = segments_max if size is None else min(segments_max, size - first)
            wanted = allow(first, wanted)
            start = first * count + number
            return range(start, start + wanted * count, count)

        def fetch(first: int, segments_max: int) -> list[Segment]:
            return self._make(numbers(first, segments_max))

        def fetch_columns(first: int, segments_max: int) -> pa.RecordBatch:
            return self._make_columns(numbers(first, segments_max))

        if self._context.batch_format == "arrow":
            return IndexedColumnsReader(cursor.position, fetch_columns, lambda: size)
        return IndexedReader(cursor.position, fetch, lambda: size)

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """What is left of a number of segments; without one there is always more."""
        sizes = {name: self._size(name) for name in cursors}
        return {
            name: Behind(max(0, size - cursors[name].position))
            for name, size in sizes.items()
            if size is not None
        }

    def _size(self, partition: str) -> int | None:
        total = self._options.segments
        if total is None:
            return None
        return max(0, -((self._names.index(partition) - total) // self._options.partitions))

    def close(self) -> None:
        """Nothing is open."""

    def _allowance(self, partition: str, position: int) -> Callable[[int, int], int]:
        per_second = self._options.rate_per_second
        if per_second is None:
            return lambda first, wanted: wanted
        rate = self._rates.get(partition)
        if rate is None:
            each = per_second / self._options.partitions
            rate = self._rates[partition] = Rate(each, position, self._context.clock)
        return rate.allow

    def _make(self, numbers: range) -> list[Segment]:
        if self._fn is None:
            return [{"n": number} for number in numbers]
        return [self._call(self._fn, number) for number in numbers]

    def _make_columns(self, numbers: range) -> pa.RecordBatch:
        column = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
        batch = pa.RecordBatch.from_arrays([pa.array(column)], ["n"])
        if self._fn is None or not len(numbers):
            return batch
        try:
            made = result_columns(self._fn(batch))
        except BaseException as error:
            raise function_error(self._context, str(self._options.fn), error) from error
        found = 0 if made is None else len(made)
        if made is None or found != len(numbers):
            what = f"returned {found} rows for {len(numbers)} numbers; return one for each"
            raise task_error(self._context, f"{self._options.fn} {what}")
        return made.record_batch

    def _call(self, fn: Callable[[int], Any], number: int) -> Segment:
        try:
            segment = fn(number)
        except OnyxError:
            raise
        except BaseException as error:
            raise function_error(self._context, f"{self._options.fn}({number})", error) from error
        if type(segment) is not dict:
            raise task_error(
                self._context,
                f"{self._options.fn}({number}) returned a {type(segment).__name__}; return a dict",
            )
        return segment


class Rate:
    """How many new positions of one partition may be handed out by now."""

    def __init__(self, per_second: float, position: int, clock: Clock) -> None:
        self._clock = clock
        self._bucket = TokenBucket(per_second, clock.monotonic_s())
        self._next_new = position

    def allow(self, first: int, wanted: int) -> int:
        """How many of `wanted` positions from `first` on may be read now."""
        old = max(0, self._next_new - first)
        allowed = min(wanted, old + self._bucket.available(self._clock.monotonic_s()))
        new = max(0, allowed - old)
        self._bucket.spend(new)
        self._next_new += new
        return allowed
