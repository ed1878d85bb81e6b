"""Input `sequence`: segments written into the job itself. For tests and first steps.

Each segment is handed out as a copy, because functions may change what they are given and the same
position must read the same again.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.codec.segments import decode, encode
from onyx.flow.batch import Segment
from onyx.plugins.built_in_options import SequenceOptions
from onyx.plugins.indexed import IndexedReader, partition_names
from onyx.plugins.options import read_options
from onyx.plugins.protocol import Cursor, PluginContext, Reader


def sequence_input(context: PluginContext) -> SequenceInput:
    return SequenceInput(read_options(context, SequenceOptions))


class SequenceInput:
    cooperative = True

    def __init__(self, options: SequenceOptions) -> None:
        count = options.partitions
        self._parts = {
            name: options.segments[number::count]
            for number, name in enumerate(partition_names(count))
        }

    def partitions(self) -> Sequence[str]:
        return list(self._parts)

    def open(self, partition: str, cursor: Cursor) -> Reader:
        segments = self._parts[partition]

        def fetch(first: int, segments_max: int) -> list[Segment]:
            return decode(encode(segments[first : first + segments_max]))

        return IndexedReader(cursor.position, fetch, lambda: len(segments))

    def close(self) -> None:
        pass
