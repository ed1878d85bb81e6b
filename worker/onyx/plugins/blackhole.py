"""Output `blackhole`: takes everything and keeps nothing, for measuring the rest."""

from __future__ import annotations

from onyx.flow.batch import Segment
from onyx.plugins.built_in_options import BlackholeOptions
from onyx.plugins.immediate import ImmediateOutput
from onyx.plugins.options import read_options
from onyx.plugins.protocol import PluginContext


def blackhole_output(context: PluginContext) -> BlackholeOutput:
    read_options(context, BlackholeOptions)
    return BlackholeOutput()


class BlackholeOutput(ImmediateOutput):
    def deliver(self, segments: list[Segment]) -> None:
        pass
