"""Which of the segments that an input has read are none of its job: they stand for records that it
could not decode (`onBadRecord: deadLetter`), cannot travel to another task, have other types than
all the others, which are columns, or have no event time although the input assigns watermarks.

They are looked for where they are read, before anything else sees them: a watermark must not rise
by a moment that no segment can have, and no function should get text that is not UTF-8. What
becomes of them is decided where it is for every segment that fails (`phases.route`), so the batch
carries them (`Batch.bad`). The same record is bad each time that it is read.

A record that could not be decoded is known by its two keys, because it may have been in a journal
meanwhile, which keeps nothing but segments. So one that itself has both is bad too, in dicts and in
columns; such records come from an `onBadRecord: segment` of another job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter

import numpy as np
import pyarrow as pa

from onyx.codec.refusals import refused_rows
from onyx.flow.batch import Indices, Read, Segment, Segments, format_of, pieces_of, take
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns, misfit
from onyx.flow.segment import (
    ERROR,
    RAW,
    BadRecord,
    SegmentFailure,
    UndecodedRecord,
    stands_in,
)
from onyx.model.job import CatalogEntry
from onyx.plugins.protocol import Input
from onyx.program.event_times import SourceTimes, Times

Types = Mapping[str, pa.DataType]
Where = Callable[[int], str]
"""Names where a segment is, by its index in the batch."""


class BadRecordFinder:
    """Finds the bad records of one input task."""

    def __init__(self, entry: CatalogEntry, plugin: Input, times: SourceTimes | None) -> None:
        """`times`: takes notice of event times; None where nobody needs them."""
        self._task = entry.name
        self._undecoded = entry.bad_records_are_letters
        self._plugin = plugin
        self._times = times
        self.timed = False
        """Whether something of what was read last has an event time."""

    def among_new(self, partition: int, read: Read, where: Where) -> list[list[SegmentFailure]]:
        """The bad records among what was read for the first time, or nothing: its times count for
        the watermark. Those of each form, by the index in that."""
        times, timed = self._times, False
        look = None if times is None else partial(times.read, partition)
        found: list[list[SegmentFailure]] = []
        for indices, segments in pieces_of(read):
            named = partial(_at, where, indices)
            found.append(self._found(segments, named, look))
            timed |= self.timed
        self.timed = timed
        return found

    def among_old(self, segments: Segments, where: Where) -> list[SegmentFailure]:
        """The bad records among what was read again."""
        times = self._times
        return self._found(segments, where, None if times is None else times.of)

    def _found(
        self, segments: Segments, where: Where, times_of: Callable[[Segments], Times] | None
    ) -> list[SegmentFailure]:
        found = format_of(segments).choose(self._among_dicts, self._among_rows)(segments)
        if times_of is not None:
            kept = np.delete(np.arange(len(segments)), [index for index, _ in found])
            newest, untimed = times_of(take(segments, kept) if found else segments)
            self.timed = newest is not None
            untimed = [(int(kept[index]), error) for index, error in untimed]
            found = sorted(found + untimed, key=itemgetter(0))
        return [self._bad(each, where) for each in found]

    def _among_dicts(self, segments: list[Segment]) -> list[SegmentFailure]:
        """Dicts that cannot travel are found when they leave the task."""
        types = self._plugin.column_types()
        found = _misfits(segments, types) if types else []
        if not self._undecoded:
            return found
        # The first look is at all segments that are read, so it is no call.
        rows = [row for row, each in enumerate(segments) if ERROR in each and stands_in(each)]
        undecoded = {row: UndecodedRecord(segments[row][ERROR]) for row in rows}
        return sorted((dict(found) | undecoded).items())

    def _among_rows(self, columns: Columns) -> list[SegmentFailure]:
        found = [] if self._plugin.examined else refused_rows(columns)
        if not (self._undecoded and columns.has(ERROR) and columns.has(RAW)):
            return found
        reasons, records = columns.column(ERROR), columns.column(RAW)
        both = pc.and_(reasons.is_valid(), records.is_valid()).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(both).tolist()
        undecoded = {row: UndecodedRecord(str(reasons[row])) for row in rows}
        return sorted((dict(found) | undecoded).items())

    def _bad(self, failure: SegmentFailure, where: Where) -> SegmentFailure:
        index, error = failure
        kind = UndecodedRecord if isinstance(error, UndecodedRecord) else BadRecord
        bad = kind(f"task {self._task!r}: {where(index)}: {error}")
        bad.__cause__ = error
        return index, bad


def _misfits(segments: Sequence[Segment], types: Types) -> list[SegmentFailure]:
    """Dicts that the columns beside them do not hold, though those have learned what they could."""
    found = ((row, misfit(each, dict(types), closed=False)) for row, each in enumerate(segments))
    return [(row, error) for row, error in found if error is not None]


def _at(where: Where, indices: Indices, index: int) -> str:
    return where(int(indices[index]))
