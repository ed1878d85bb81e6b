"""Base of outputs whose segments are durable when `write` returns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onyx.flow.segment import Segment
from onyx.ids import GroupId


class ImmediateOutput:
    """Counts what was written; a subclass implements `deliver`."""

    cooperative = True

    def __init__(self) -> None:
        self._durable = 0

    def deliver(self, segments: list[Segment]) -> None:
        """Write the segments; they are durable when this returns. Subclasses implement it."""
        raise NotImplementedError

    def write(self, segments: list[Segment]) -> None:
        """Deliver the segments and count them."""
        self.deliver(segments)
        self._durable += len(segments)

    def durable(self) -> int:
        """All segments that were delivered."""
        return self._durable

    def flush(self) -> None:
        """Nothing waits."""

    def tick(self) -> None:
        """Nothing waits."""

    def fence(self, live: Sequence[GroupId]) -> None:
        """Nothing is staged, so nothing can be published late."""

    def seal(self) -> None:
        """The result is complete already."""

    def close(self) -> None:
        """Leave the task; subclasses release what they hold."""


class ImmediateColumnsOutput(ImmediateOutput):
    """Takes columns as well (`protocol.ColumnsOutput`)."""

    def deliver_columns(self, columns: pa.RecordBatch) -> None:
        """`deliver` for the rows of a record batch. Subclasses implement it."""
        raise NotImplementedError

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Deliver the rows and count them."""
        self.deliver_columns(columns)
        self._durable += columns.num_rows
