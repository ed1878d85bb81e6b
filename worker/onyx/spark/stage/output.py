"""Output `spark`: peers write Parquet parts, and when all input is done one peer runs a stage.

Peers write like the `files` output: a part is published whole and durable, and only then are its
segments acked. `seal` runs the stage over the parts of this job and of the versions before it
(`versions`); the runtime calls it again, here or on another peer, until it succeeds or its attempts
are used up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from onyx.errors import Blocked, Unavailable, UserFunctionError
from onyx.ids import GroupId
from onyx.plugins.options import located, task_error
from onyx.plugins.parts.columns import ColumnsPartsWriter
from onyx.plugins.parts.formats import ParquetFormat
from onyx.plugins.parts.output_folder import is_full
from onyx.plugins.protocol import PluginContext, UpgradedJob
from onyx.plugins.roll_limits import roll_limits
from onyx.spark.child.request import StageRequest, StageRunner
from onyx.spark.child.runner import run_in_child
from onyx.spark.stage.options import SparkOptions, wrong_master_of
from onyx.spark.stage.results import Results, directory_results, object_results


class SparkOutput(ColumnsPartsWriter):
    """The output of one peer."""

    def __init__(
        self, context: PluginContext, options: SparkOptions, runner: StageRunner = run_in_child
    ) -> None:
        """
        Raises:
            NameNotRegistered: the stage is not a function of a listed module.
            UserError: Spark cannot run the stage where this worker's own master is.
        """
        context.resolve(options.stage)
        self._options = options
        self._master = _master(context, options)
        self._runner = runner
        self._results = _results(context, options)
        form = ParquetFormat(context)
        super().__init__(self._results.parts, form, context, roll_limits(options))

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """See `protocol.OneResultOutput`."""
        with self._store.explained():
            self._results.upgrade(old)

    def seal(self) -> None:
        """Run the stage, unless its result stands.

        Raises:
            UserFunctionError: the stage failed.
            Blocked: there is no room for the result.
            Unavailable: Spark or the file system failed; try again.
            Fenced: this incarnation was declared dead meanwhile, or the task is to stop.
        """
        options = self._options
        request = StageRequest(
            stage=options.stage,
            parts=(),
            target="",
            result_format=options.result_format,
            schema=options.schema,
            master=self._master,
            spark_conf=options.spark_conf,
            name=f"onyx: {self._context.job_name}, {self._context.task}",
        )
        where = f"{self._context.where}: stage"
        try:
            self._results.run(request, self._runner, options.stage_timeout)
        except (UserFunctionError, Unavailable) as error:
            kind = Blocked if is_full(error) else type(error)
            raise kind(f"{where} {options.stage}: {error}") from error
        super().seal()

    def _fence_off(self, live: Sequence[GroupId]) -> None:
        self._results.fence(live)


def _master(context: PluginContext, options: SparkOptions) -> str:
    if options.master is not None:
        return options.master
    for problem in wrong_master_of(options, context.spark_master):
        raise task_error(
            context,
            f"{problem.path} {problem.message} (ONYX_SPARK_MASTER of the workers, because the task "
            f"names none): {problem.hint}",
        )
    return context.spark_master


def _results(context: PluginContext, options: SparkOptions) -> Results:
    place = located(context, options.path)
    if isinstance(place, Path):
        return directory_results(place, context)
    return object_results(place, context)
