"""Input and output `channel`: a bounded queue in memory, for tests within one process.

A test makes a channel (`open_channel`) and jobs find it by its name. It keeps what was taken until
it is not needed any more: positions can be read again until the input's frontier has passed them. A
plain queue forgets what was taken, and could not be replayed. Dicts and columns may be put and
taken in turn.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence

import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.batch import Segments, as_columns, as_dicts, as_given, format_of, part_of
from onyx.flow.columns.record_batch import Columns, join
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.bases import IndexedColumnsReader, IndexedReader
from onyx.plugins.options import option_error
from onyx.plugins.protocol import Cursor, Input, PluginContext, Reader
from onyx.plugins.segment_runs import SegmentRuns, first_alike
from onyx.plugins.small_options import ChannelOptions

SEGMENTS_MAX = 100_000
"""Room of a channel that names no other."""
_channels: dict[str, Channel] = {}


class Channel:
    """A bounded queue of segments with positions, safe to use from several threads."""

    def __init__(self, name: str, segments_max: int = SEGMENTS_MAX) -> None:
        """Room for `segments_max` segments that nobody has finished with."""
        assert segments_max > 0, "a channel without room can never be used"
        self.name = name
        self._segments_max = segments_max
        self._kept = SegmentRuns()
        self._first = 0
        self._passed = 0
        self._closed = False
        self._changed = threading.Condition()

    def offer(self, segments: Segments) -> int:
        """Put as many as there is room for, without waiting; returns how many.

        Raises:
            UserError: the channel is closed.
        """
        with self._changed:
            if self._closed:
                raise UserError(f"channel {self.name!r} is closed; nothing can be put into it")
            fitting = part_of(segments, 0, self._make_room(len(segments)))
            self._kept.append(_copied(fitting))
            self._changed.notify_all()
            return len(fitting)

    def put(self, *segments: Segment, timeout_s: float = 10.0) -> None:
        """Put segments, waiting for room.

        Raises:
            UserError: there was no room for `timeout_s`, or the channel is closed.
        """
        self._put(list(segments), timeout_s)

    def put_columns(self, columns: pa.RecordBatch, timeout_s: float = 10.0) -> None:
        """Puts what `put` does, for the rows of a record batch."""
        self._put(Columns.of(columns), timeout_s)

    def _put(self, segments: Segments, timeout_s: float) -> None:
        done = 0
        while done < len(segments):
            done += self.offer(part_of(segments, done, len(segments)))
            with self._changed:
                if done < len(segments) and not self._changed.wait_for(self._has_room, timeout_s):
                    raise UserError(f"channel {self.name!r} had no room for {timeout_s} s")

    def take(self, segments_max: int = SEGMENTS_MAX, timeout_s: float = 0.0) -> list[Segment]:
        """Remove the oldest segments, waiting up to `timeout_s` for the first. Empty when there
        are none. For channels that a job writes; one that a job reads is emptied by the job."""
        return [each for run in self._take(segments_max, timeout_s) for each in as_dicts(run)]

    def take_columns(
        self, segments_max: int = SEGMENTS_MAX, timeout_s: float = 0.0
    ) -> pa.RecordBatch:
        """Takes what `take` does, as a record batch.

        Raises:
            UserError: a key has values that no type of column holds.
        """
        taken = [_columns(run) for run in self._take(segments_max, timeout_s)]
        return (join(taken) if taken else _columns([])).record_batch

    def _take(self, segments_max: int, timeout_s: float) -> list[Segments]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting() > 0 or self._closed, timeout_s)
            taken = self._slice(self._passed, segments_max)
            self._pass(self._passed + sum(map(len, taken)))
            return taken

    def close(self) -> None:
        """Nothing more will be put: an input that has read everything is exhausted."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether nothing more can be put."""
        return self._closed

    def end(self) -> int | None:
        """How many segments were ever put, once the channel is closed."""
        with self._changed:
            return self._first + len(self._kept) if self._closed else None

    def fetch(self, position: int, segments_max: int) -> list[Segment]:
        """Copies of segments from `position` on, without removing them.

        Raises:
            UserError: the position has been passed and forgotten.
        """
        found = self._kept_from(position, segments_max)
        return [each for run in found for each in as_dicts(run)]

    def fetch_columns(self, position: int, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """The next of them of one kind, as they were put."""
        return as_given(first_alike(self._kept_from(position, segments_max)))

    def _kept_from(self, position: int, segments_max: int) -> list[Segments]:
        with self._changed:
            if position < self._first:
                raise UserError(
                    f"channel {self.name!r} no longer has position {position}, only those from "
                    f"{self._first} on; let one job at a time read a channel"
                )
            return list(map(_copied, self._slice(position, segments_max)))

    def passed(self, position: int) -> None:
        """Positions before this one may be forgotten when their room is needed."""
        with self._changed:
            self._pass(position)

    def _pass(self, position: int) -> None:
        self._passed = max(self._passed, position)
        self._changed.notify_all()

    def _slice(self, position: int, segments_max: int) -> list[Segments]:
        return self._kept.between(position - self._first, segments_max)

    def _waiting(self) -> int:
        return self._first + len(self._kept) - self._passed

    def _has_room(self) -> bool:
        return self._closed or self._waiting() < self._segments_max

    def _make_room(self, wanted: int) -> int:
        """Forget passed segments, only as many as needed: a peer may still go back to them."""
        lacking = len(self._kept) + wanted - self._segments_max
        forgotten = min(max(0, lacking), self._passed - self._first)
        self._kept.drop(forgotten)
        self._first += forgotten
        return min(wanted, self._segments_max - len(self._kept))


def _copied(run: Segments) -> Segments:
    """Columns are immutable."""
    copied = format_of(run).choose(_copies, _itself)
    return copied(run)


def _copies(segments: list[Segment]) -> Segments:
    return copy.deepcopy(segments)


def _itself(columns: Columns) -> Segments:
    return columns


def _columns(run: Segments) -> Columns:
    columns, _, failures = as_columns(run)
    if failures:
        raise UserError(f"segment {failures[0][0]} of the channel: {failures[0][1]}")
    return columns


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
