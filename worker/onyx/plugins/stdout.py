"""Output `stdout`: one JSON line a segment on the worker's standard output."""

from __future__ import annotations

import sys

from onyx.flow.batch import Segment
from onyx.plugins.built_in_options import StdoutOptions
from onyx.plugins.immediate import ImmediateOutput
from onyx.plugins.jsonl import JsonLines
from onyx.plugins.options import read_options
from onyx.plugins.protocol import PluginContext


def stdout_output(context: PluginContext) -> StdoutOutput:
    return StdoutOutput(context, read_options(context, StdoutOptions))


class StdoutOutput(ImmediateOutput):
    cooperative = False
    """A pipe that nobody reads blocks."""

    def __init__(self, context: PluginContext, options: StdoutOptions) -> None:
        super().__init__()
        self._encode = JsonLines(context, options.nan).encode

    def deliver(self, segments: list[Segment]) -> None:
        sys.stdout.write(self._encode(segments).decode())
        sys.stdout.flush()
