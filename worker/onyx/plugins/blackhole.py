"""Output `blackhole`: takes everything and keeps nothing, for measuring the rest."""

from __future__ import annotations

from onyx.flow.batch import Segment
from onyx.plugins.immediate import ImmediateOutput
from onyx.plugins.options import Options, read_options
from onyx.plugins.protocol import PluginContext


class BlackholeOptions(Options, frozen=True):
    """None."""


def blackhole_output(context: PluginContext) -> BlackholeOutput:
    read_options(context, BlackholeOptions)
    return BlackholeOutput()


class BlackholeOutput(ImmediateOutput):
    def deliver(self, segments: list[Segment]) -> None:
        pass
