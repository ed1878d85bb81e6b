"""The `spark` output with a runner of a test's own."""

from __future__ import annotations

from onyx.plugins.options import read_options
from onyx.plugins.protocol import PluginContext
from onyx.spark.launcher import run_in_process
from onyx.spark.options import SparkOptions
from onyx.spark.output import SparkOutput
from onyx.spark.request import StageRunner


def output(context: PluginContext, runner: StageRunner = run_in_process) -> SparkOutput:
    """What the registry builds, but for the runner."""
    return SparkOutput(context, read_options(context, SparkOptions), runner)
