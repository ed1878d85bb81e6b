"""Output `stdout`: one JSON line for each segment, on the worker's standard output."""

from __future__ import annotations

import sys

from onyx.flow.segment import Segment
from onyx.plugins.immediate import ImmediateOutput
from onyx.plugins.jsonl import JsonLines
from onyx.plugins.protocol import PluginContext
from onyx.plugins.small_options import StdoutOptions


class StdoutOutput(ImmediateOutput):
    """Writes each batch and flushes the stream."""

    cooperative = False
    """A pipe that nobody reads blocks."""

    def __init__(self, context: PluginContext, options: StdoutOptions) -> None:
        super().__init__()
        self._encode = JsonLines(context, options.nan).encode

    def deliver(self, segments: list[Segment]) -> None:
        """Write one line for each segment."""
        sys.stdout.write(self._encode(segments).decode())
        sys.stdout.flush()
