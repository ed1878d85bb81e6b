"""Inputs of jobs that measure themselves. `bench_probe` imports nothing of Onyx, for the programs
that Onyx is compared with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from bench_probe import StampingReader

from onyx.plugin import ColumnsReader, Cursor, Input, Reader


class StampedReader(StampingReader, Reader):
    """One partition."""

    def cursor(self, position: int) -> Cursor:
        return Cursor(position)

    def close(self) -> None:
        pass


class StampedColumnsReader(StampedReader, ColumnsReader):
    """A stamp is made when a batch is read."""

    def read_columns(self, segments_max: int) -> Any:
        segments = self.read(segments_max)
        numbers = [each["n"] for each in segments]
        stamps = [each["ns"] for each in segments]
        columns = {"n": pa.array(numbers, pa.int64()), "ns": pa.array(stamps, pa.int64())}
        return pa.record_batch(columns)


class StampedInput(Input):
    cooperative = True

    def __init__(self, size: int, reader: Any) -> None:
        self.size = size
        self.reader = reader

    def partitions(self) -> list[str]:
        return ["only"]

    def open(self, partition: str, cursor: Cursor) -> Any:
        return self.reader(cursor.position, self.size)

    def close(self) -> None:
        pass


def stamping(context: Any) -> StampedInput:
    """Input plugin: `segments` of `{"n": number, "ns": CLOCK_MONOTONIC}`, 200 a second."""
    return StampedInput(context.options["segments"], StampedReader)


def stamping_columns(context: Any) -> StampedInput:
    """Input plugin: the segments of `stamping` as columns."""
    return StampedInput(context.options["segments"], StampedColumnsReader)
