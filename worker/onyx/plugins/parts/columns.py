"""Parts of segments in columns, beside segments in dicts: one part may hold both.

A class of its own, so that a `PartsWriter` of a user, which may change segments in `write`, gets
all of them there.
"""

from __future__ import annotations

from typing import BinaryIO, Protocol

import pyarrow as pa

from onyx.flow.columns.record_batch import Columns
from onyx.plugins.parts.writer import PartBody, PartsWriter
from onyx.plugins.protocol import PluginContext
from onyx.plugins.roll_limits import ROLL_LIMITS, RollLimits
from onyx.storage.staging.interface import PartStore


class ColumnsBody(PartBody, Protocol):
    """A body that takes columns as well."""

    def add_columns(self, columns: Columns) -> None:
        """Encode segments in columns. Raises like `add`."""
        ...


class ColumnsFormat(Protocol):
    """How segments and columns become a file: a `PartFormat` of such bodies."""

    suffix: str
    """End of the names of parts, with its dot."""

    def begin(self, file: BinaryIO) -> ColumnsBody:
        """The body of a new part, which writes to `file`."""
        ...


class ColumnsPartsWriter(PartsWriter):
    """A `PartsWriter` that takes columns (`protocol.ColumnsOutput`)."""

    def __init__(
        self,
        store: PartStore,
        form: ColumnsFormat,
        context: PluginContext,
        limits: RollLimits = ROLL_LIMITS,
    ) -> None:
        super().__init__(store, form, context, limits)

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Writes as `write`. The rows of one call stay in one part, as the segments of one call
        do."""
        if columns.num_rows:
            self._add(columns.num_rows, lambda body: body.add_columns(Columns(columns)))
