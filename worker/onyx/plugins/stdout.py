"""Output `stdout`: one JSON line for each segment, on the worker's standard output."""

from __future__ import annotations

import sys

import pyarrow as pa

from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.plugins.bases import ImmediateColumnsOutput
from onyx.plugins.jsonl import JsonLines
from onyx.plugins.protocol import PluginContext
from onyx.plugins.small_options import StdoutOptions


class StdoutOutput(ImmediateColumnsOutput):
    """Writes each batch and flushes the stream."""

    cooperative = False
    """A pipe that nobody reads blocks."""

    def __init__(self, context: PluginContext, options: StdoutOptions) -> None:
        super().__init__()
        self._lines = JsonLines(context, options.nan)

    def deliver(self, segments: list[Segment]) -> None:
        """Write one line for each segment."""
        sys.stdout.write(self._lines.encode(segments).decode())
        sys.stdout.flush()

    def deliver_columns(self, columns: pa.RecordBatch) -> None:
        """Write one line for each row."""
        for lines in self._lines.encode_columns(Columns(columns)):
            sys.stdout.write(lines.decode())
        sys.stdout.flush()
