"""Output `spark`: peers write Parquet parts, and when all input is done one peer runs a stage.

Peers write like the `files` output: a part is published whole and durable, and only then are its
segments acked. `seal` runs the stage over the parts of this job and of the versions before it
(`versions`); the runtime calls it again, here or on another peer, until it succeeds or its attempts
are used up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onyx.errors import Blocked, Unavailable, UserFunctionError
from onyx.ids import GroupId
from onyx.plugins.parts.formats import ParquetFormat
from onyx.plugins.parts.writer import ColumnsPartsWriter
from onyx.plugins.protocol import PluginContext, UpgradedJob
from onyx.plugins.rolling import roll_limits
from onyx.spark.child.request import StageRunner
from onyx.spark.child.runner import run_in_child
from onyx.spark.stage.frames import request_of
from onyx.spark.stage.options import SparkOptions
from onyx.spark.stage.results import results_at
from onyx.spark.types import for_spark
from onyx.storage.file_system import is_full


class SparkOutput(ColumnsPartsWriter):
    """The output of one peer."""

    def __init__(
        self, context: PluginContext, options: SparkOptions, runner: StageRunner = run_in_child
    ) -> None:
        """Raises NameNotRegistered, UserError: see `frames.request_of`."""
        self._request = request_of(context, options)
        self._options = options
        self._runner = runner
        appends = self._request is not None and self._request.write.appends
        self._results = results_at(context, options.path, options.frame, appends)
        form = ParquetFormat(context, fit=for_spark)
        super().__init__(self._results.parts, form, context, roll_limits(options))

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called on every peer before it is ready, from a thread that may block: make sure that the
        result will hold the parts of the old job and of those before it."""
        with self._store.explained():
            self._results.upgrade(old)

    def seal(self) -> None:
        """Run the stage, unless there is none or its result stands.

        Raises:
            UserFunctionError: the stage failed.
            Blocked: there is no room for the result.
            Unavailable: Spark or the file system failed; try again.
            Fenced: this incarnation was declared dead meanwhile, or the task is to stop.
        """
        if self._request is not None:
            try:
                self._results.run(self._request, self._runner, self._options.stage_timeout)
            except (UserFunctionError, Unavailable) as error:
                kind = Blocked if is_full(error) else type(error)
                where = f"{self._context.where}: stage {self._request.stage}"
                raise kind(f"{where}: {error}") from error
        super().seal()

    def _fence_off(self, live: Sequence[GroupId]) -> None:
        self._results.fence(live)
