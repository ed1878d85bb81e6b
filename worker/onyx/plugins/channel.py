"""Input and output `channel`: a bounded queue in memory, for tests within one process.

A test makes a channel (`open_channel`) and jobs find it by its name.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.channel_queue import SEGMENTS_MAX, Channel
from onyx.plugins.indexed import IndexedColumnsReader, IndexedReader
from onyx.plugins.options import option_error
from onyx.plugins.protocol import Cursor, Input, PluginContext, Reader
from onyx.plugins.segment_runs import SegmentRuns
from onyx.plugins.small_options import ChannelOptions

_channels: dict[str, Channel] = {}


def open_channel(name: str, segments_max: int = SEGMENTS_MAX) -> Channel:
    """A new, empty channel of this name in this process; replaces one that had the name."""
    _channels[name] = Channel(name, segments_max)
    return _channels[name]


def _find(context: PluginContext, options: ChannelOptions) -> Channel:
    name = options.channel
    if name not in _channels:
        raise option_error(
            context,
            "channel",
            f"names {name!r}, which does not exist in this process; call open_channel({name!r}) "
            "before the job starts, and run its peers in the same process",
        )
    return _channels[name]


class ChannelInput(Input):
    """Reads a channel as one partition."""

    cooperative = True

    def __init__(self, context: PluginContext, options: ChannelOptions) -> None:
        self._channel = _find(context, options)
        self._columns = context.batch_format == "arrow"

    def partitions(self) -> Sequence[str]:
        """One, named like the channel."""
        return [self._channel.name]

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader that copies segments and removes none."""
        channel = self._channel
        at, end, passed = cursor.position, channel.end, channel.passed
        if self._columns:
            return IndexedColumnsReader(at, channel.fetch_columns, end, passed)
        return IndexedReader(at, channel.fetch, end, passed)

    def close(self) -> None:
        """Leave the channel open for others."""


class ChannelOutput:
    """Segments that do not fit wait here unacked, so a slow test holds back the job's input."""

    cooperative = True

    def __init__(self, context: PluginContext, options: ChannelOptions) -> None:
        self._channel = _find(context, options)
        self._waiting = SegmentRuns()
        self._durable = 0

    def write(self, segments: list[Segment]) -> None:
        """Offer the segments; the rest waits here."""
        self._waiting.append(segments)
        self._offer()

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Writes what `write` does, for the rows of a record batch."""
        self._waiting.append(Columns(columns))
        self._offer()

    def durable(self) -> int:
        """Segments that the channel has accepted."""
        return self._durable

    def flush(self) -> None:
        """Offer what waits."""
        self._offer()

    def tick(self) -> None:
        """Offer what waits."""
        self._offer()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Nothing is staged, so nothing can be published late."""

    def seal(self) -> None:
        """Close the channel, so that whoever takes from it knows that this was all."""
        self._channel.close()

    def close(self) -> None:
        """Drop what waits; it is replayed."""
        self._waiting.clear()

    def _offer(self) -> None:
        for run in self._waiting.between(0, len(self._waiting)):
            accepted = self._channel.offer(run)
            self._waiting.drop(accepted)
            self._durable += accepted
            if accepted < len(run):
                return
