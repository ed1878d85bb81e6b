"""Transactions of segments in columns, beside segments in dicts: one may hold both.

A class of its own, so that a `TransactionWriter` of a user, which may change segments in `write`,
gets all of them there, and a `TransactionStore` of a user need not know columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from onyx.codec import columns as column_codec
from onyx.codec import segments as segment_codec
from onyx.errors import SegmentError
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.roll_limits import TRANSACTION_LIMITS, RollLimits
from onyx.plugins.segment_runs import Run
from onyx.plugins.transactions import Packed, TransactionStore, TransactionWriter


class ColumnsStore(TransactionStore, Protocol):
    """A `TransactionStore` that writes columns as well. The methods raise like its own."""

    def check_columns(self, columns: Columns) -> None:
        """`check` for segments in columns."""
        ...

    def apply_runs(self, writer: str, number: int, runs: Sequence[Run]) -> bool:
        """`apply` for dicts and columns in their order."""
        ...


class ColumnsTransactionWriter(TransactionWriter):
    """A `TransactionWriter` that takes columns (`protocol.ColumnsOutput`)."""

    def __init__(
        self, store: ColumnsStore, context: PluginContext, limits: RollLimits = TRANSACTION_LIMITS
    ) -> None:
        super().__init__(store, context, limits)
        self._columns_store = store

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Writes as `write`. The rows of one call stay together, as the segments of one call do."""
        if columns.num_rows:
            self._take(columns.num_rows, lambda: self._packed_columns(Columns(columns)))

    def _packed_columns(self, columns: Columns) -> Packed:
        try:
            schema = column_codec.encode_schema(columns.record_batch.schema)
        except SegmentError as error:
            raise task_error(self._context, str(error)) from error
        self._columns_store.check_columns(columns)
        return [schema, column_codec.encode(columns)]

    def _apply_packed(self, writer: str, number: int, packed: Sequence[Packed]) -> bool:
        return self._columns_store.apply_runs(writer, number, list(_runs(packed)))


def _runs(packed: Sequence[Packed]) -> Iterator[Run]:
    """What was written. Dicts of several calls are one run."""
    segments: list[Segment] = []
    for each in packed:
        if len(each) == 1:
            segments += segment_codec.decode(each[0])
            continue
        if segments:
            yield segments
            segments = []
        schema, batch = each
        yield column_codec.decode(batch, column_codec.decode_schema(schema))
    if segments:
        yield segments
