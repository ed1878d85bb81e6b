"""Segments get what another task keeps: one batch at a time, in its own format.

Dicts get it as it is kept, so what one gets does not depend on the states that others of its batch
get. Columns get it as a column, so what does not fit into it with the others fails.
"""

from __future__ import annotations

import numpy as np

from onyx.flow.columns.record_batch import Columns
from onyx.flow.formats import Segments, format_of
from onyx.flow.segment import JoinRefusal, Segment, SegmentFailure
from onyx.joins.enrichment import OCCUPIED, Enrichment, Joined
from onyx.joins.kept import Kept
from onyx.keystate.copies import copied

_MISSING = object()


class Reading:
    """The join of a task with what another one keeps."""

    def __init__(self, kept: Kept, inner: bool = False) -> None:
        """`inner`: a segment that finds nothing ends here."""
        self.kept = kept
        self.inner = inner
        default = {} if kept.default is None else {kept.column: kept.default}
        self._rows = Enrichment(lambda: kept, kept.key, inner, (kept.column,), default=default)

    def of(self, segments: Segments) -> Joined:
        """The segments with the state of their group.

        A segment fails whose state cannot be given, or that has a value of its own where it would
        get one.
        """
        return format_of(segments).choose(self._of_dicts, self._of_columns)(segments)

    def _of_columns(self, columns: Columns) -> Joined:
        return self._rows.of(columns)

    def _of_dicts(self, segments: list[Segment]) -> Joined:
        kept, column = self.kept, self.kept.column
        joined: list[Segment] = []
        there: list[int] = []
        failures: list[SegmentFailure] = []
        missed = 0
        for index, key in enumerate(kept.groups_of(segments)):
            segment = segments[index]
            if segment.get(column) is not None:
                failures.append((index, JoinRefusal(OCCUPIED.format(column, kept.title))))
                continue
            if key in kept.refused:
                why = f"join with {kept.title}: {kept.refused[key]}"
                failures.append((index, JoinRefusal(why)))
                continue
            state = _MISSING if key is None else kept.states.get(key, _MISSING)
            if state is _MISSING:
                missed += 1
                if self.inner:
                    continue
                state = kept.default
            joined.append({**segment, column: copied(state)})
            there.append(index)
        all_there = len(there) == len(segments)
        return Joined(joined, None if all_there else np.array(there, np.intp), failures, missed)
