"""Input `sequence`: segments written into the job itself. For tests and first steps.

Readers return copies: functions may change a segment, and a position must read the same again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onyx.codec.segments import decode, encode
from onyx.flow.segment import Segment
from onyx.plugins.bases import IndexedReader, partition_names
from onyx.plugins.protocol import Behind, Cursor, Input, PluginContext, Reader
from onyx.plugins.small_options import SequenceOptions
from onyx.plugins.starting import check_partitions, read_start


class SequenceInput(Input):
    """Positions of a partition are indices into its share of the segments."""

    cooperative = True

    def __init__(self, context: PluginContext, options: SequenceOptions) -> None:
        self._context, count = context, options.partitions
        self._start = read_start(options.start_from)
        self._parts = {
            name: options.segments[number::count]
            for number, name in enumerate(partition_names(count))
        }

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        check_partitions(self._context, self._start, self._parts)
        return list(self._parts)

    def start(self, partition: str) -> Cursor:
        """The position that `startFrom` says."""
        return Cursor(self._start.position(partition))

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader that gives copies."""
        segments = self._parts[partition]

        def fetch(first: int, segments_max: int) -> list[Segment]:
            return decode(encode(segments[first : first + segments_max]))

        return IndexedReader(cursor.position, fetch, lambda: len(segments))

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """What is left of each share."""
        return {
            name: Behind(max(0, len(self._parts[name]) - at.position))
            for name, at in cursors.items()
        }

    def close(self) -> None:
        """Nothing is open."""
