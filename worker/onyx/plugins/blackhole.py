"""Output `blackhole`: drops every segment, to measure the rest of a job."""

from __future__ import annotations

import pyarrow as pa

from onyx.flow.segment import Segment
from onyx.plugins.bases import ImmediateColumnsOutput
from onyx.plugins.protocol import PluginContext
from onyx.plugins.small_options import BlackholeOptions


class BlackholeOutput(ImmediateColumnsOutput):
    """Counts segments as durable and drops them."""

    def __init__(self, context: PluginContext, options: BlackholeOptions) -> None:
        super().__init__()

    def deliver(self, segments: list[Segment]) -> None:
        """Do nothing with the segments."""

    def deliver_columns(self, columns: pa.RecordBatch) -> None:
        """Do nothing with the rows."""
