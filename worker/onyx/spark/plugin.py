"""Output `spark`: peers write Parquet parts, and when all input is done one peer runs a stage.

Writing is that of the `files` output: parts become visible whole and durable, and only then are
their segments acked. `seal` runs the stage over the parts of this job; the runtime calls it again,
here or on another peer, until it succeeds or its attempts are used up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from onyx.errors import Unavailable, UserFunctionError
from onyx.plugins.options import Options, option_error, read_options
from onyx.plugins.part_formats import ParquetFormat
from onyx.plugins.parts import PartsWriter, RollLimits
from onyx.plugins.places import located
from onyx.plugins.protocol import PluginContext
from onyx.spark.launcher import run_in_process
from onyx.spark.request import StageRequest, StageRunner
from onyx.spark.results import DirectoryResults, ObjectResults, Results


class SparkOutputOptions(Options, frozen=True):
    stage: str
    """`package.module:name` of a function from DataFrame to DataFrame."""
    path: Annotated[str, msgspec.Meta(min_length=1)]
    """Directory or `s3://bucket/prefix` for `parts/` and `result/`; all workers of the task (and
    Spark, if it is a directory) must see it."""
    master: Annotated[str, msgspec.Meta(min_length=1)] = "local[*]"
    """`local[*]`, `spark://host:port`, `k8s://...`, or `sc://host:port` for Spark Connect."""
    result_format: Literal["parquet", "jsonl"] = "parquet"
    schema: str | None = None
    """Columns of the segments in Spark's DDL (`row BIGINT, delay DOUBLE`). Without it they are
    taken from the parts, and no stage runs when there is not a single segment."""
    stage_timeout: Annotated[float, msgspec.Meta(gt=0)] = 3_600.0
    """Longest run of the stage in seconds."""
    spark_conf: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of Spark (`spark.driver.memory: 4g`)."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1)] = RollLimits().size_bytes
    """Start a new part at about this size."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = RollLimits().segments
    """Start a new part after so many segments."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = RollLimits().age_s
    """Start a new part after this time; keep it well below the input's `pendingTimeout`."""


def output(context: PluginContext, runner: StageRunner = run_in_process) -> SparkOutput:
    """The output of one peer.

    Raises:
        UserError: an option is wrong.
        NameNotRegistered: the stage is not a function of a listed module.
    """
    options = read_options(context, SparkOutputOptions)
    context.resolve(options.stage)
    return SparkOutput(context, options, runner)


class SparkOutput(PartsWriter):
    cooperative = False
    """Forcing a part to disk takes milliseconds, the stage seconds or more."""

    def __init__(
        self, context: PluginContext, options: SparkOutputOptions, runner: StageRunner
    ) -> None:
        self._options = options
        self._runner = runner
        self._results = _results(context, options)
        limits = RollLimits(options.roll_bytes, options.roll_segments, options.roll_seconds)
        super().__init__(self._results.parts, ParquetFormat(context), context, limits)

    def seal(self) -> None:
        """Run the stage, unless its result stands.

        Raises:
            UserFunctionError: the stage failed.
            Unavailable: Spark or the file system failed; try again.
            Fenced: this incarnation was declared dead meanwhile, or the task told to stop.
        """
        options = self._options
        request = StageRequest(
            stage=options.stage,
            parts=(),
            target="",
            result_format=options.result_format,
            schema=options.schema,
            master=options.master,
            spark_conf=options.spark_conf,
            name=f"onyx: {self._context.job_name}, {self._context.task}",
        )
        where = f"job {self._context.job_name!r}, task {self._context.task!r}: stage"
        try:
            self._results.run(request, self._runner, options.stage_timeout)
        except (UserFunctionError, Unavailable) as error:
            raise type(error)(f"{where} {options.stage}: {error}") from error
        super().seal()


def _results(context: PluginContext, options: SparkOutputOptions) -> Results:
    place = located(context, options.path)
    if isinstance(place, Path):
        return DirectoryResults(place, context)
    if not options.master.startswith("local"):
        raise option_error(
            context,
            "master",
            f"is {options.master!r}, but parts in an object store are copied to the worker, where "
            "only a local master sees them; take a local one, or a path on a shared volume",
        )
    return ObjectResults(place, context)
