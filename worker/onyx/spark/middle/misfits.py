"""Segments that no column of a frame holds, found when they come and not when the stage runs.

A key has the type of the first segment that has it, or one that holds all that came: integers and
fractions together are fractions. What is no value of that type fails alone, so a condition or a
dead letter may take it. Who writes in another process has seen other segments, so two may disagree
about a key whose first values differ; then the parts do not fit together, and the stage says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import OnyxError
from onyx.flow.batch import Segments, as_columns
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment_failure import Refusal, SegmentFailure
from onyx.spark.types import joined_type


class FrameTypes:
    """The types of the keys of one frame, as one writer knows them."""

    def __init__(self) -> None:
        self._known: dict[str, pa.DataType] = {}
        self._names: dict[str, str] = {}
        """Names of keys by what Spark takes for the same name."""

    def misfits(self, segments: Segments) -> list[SegmentFailure]:
        """The segments that do not fit, by index, each once; types of the others are known then."""
        columns, kept, found = as_columns(segments)
        failures = dict(found)
        for row, error in self._wrong(columns):
            failures.setdefault(row if kept is None else int(kept[row]), error)
        return sorted(failures.items(), key=lambda each: each[0])

    def _wrong(self, columns: Columns) -> Iterator[SegmentFailure]:
        batch = columns.record_batch
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            why = self._why_not(name, column.type)
            if why:
                error = Refusal(f"key {name!r} cannot be in a DataFrame of the stage: {why}")
                there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
                yield from ((row, error) for row in there.tolist())

    def _why_not(self, name: str, kind: pa.DataType) -> str:
        """Why a column of this type does not fit; empty if it does."""
        if kinds.is_null(kind):
            return ""
        other = self._names.setdefault(name.lower(), name)
        if other != name:
            return f"it differs from {other!r} only in case, and Spark does not tell them apart"
        known = self._known.get(name, pa.null())
        try:
            self._known[name] = joined_type(name, known, kind)
        except OnyxError as error:
            if kinds.is_null(known):
                return str(error)
            return f"it is of type {kind} where others are {known}"
        return ""
