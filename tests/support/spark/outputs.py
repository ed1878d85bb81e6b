"""The `spark` output with a runner of a test's own."""

from __future__ import annotations

from onyx.plugins.options import read_options
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import StageRunner
from onyx.spark.child.runner import run_in_child
from onyx.spark.stage.options import SparkOptions
from onyx.spark.stage.output import SparkOutput


def output(context: PluginContext, runner: StageRunner = run_in_child) -> SparkOutput:
    """What the registry builds, but for the runner."""
    return SparkOutput(context, read_options(context, SparkOptions), runner)
