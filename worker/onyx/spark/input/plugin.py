"""Input `spark`: the rows of a DataFrame, from the Parquet files of a snapshot.

Every file is a partition, and positions are the numbers of its rows. The reader is that of the
input `files`. See `snapshot` for how the files come to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onyx.errors import Unavailable, UserFunctionError
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import InputOptions
from onyx.plugins.options import folder_at
from onyx.plugins.protocol import Cursor, Input, PluginContext, Reader, UpgradedJob
from onyx.spark.child.request import EXACT_TYPES, FrameSource, StageRequest, StageRunner, Watch
from onyx.spark.child.runner import run_in_child
from onyx.spark.input.options import SparkInputOptions
from onyx.spark.input.snapshot import Snapshot
from onyx.spark.located_options import given_options
from onyx.spark.result_names import SUFFIX
from onyx.spark.session.spark_master import spark_for, wrong_spark_master
from onyx.spark.target import Target
from onyx.storage.interface import Location


class SparkInput(Input):
    """The input of one peer."""

    examined = True
    cooperative: bool
    """Reading, as `FilesInput`; the DataFrame is evaluated off the task's thread."""

    def __init__(
        self,
        context: PluginContext,
        options: SparkInputOptions,
        runner: StageRunner = run_in_child,
    ) -> None:
        """
        Raises:
            NameNotRegistered: the frame is not a function of a listed module.
            UserError: it cannot be evaluated where this worker's own master is, or names what the
                owner of the worker does not let jobs name.
        """
        if options.frame is not None:
            context.resolve(options.frame)
        location = folder_at(context, options.path)
        self._context = context
        self._options = options
        self._format_options = given_options(
            context, "formatOptions", options.format_options, options.format_options_env
        )
        self._where = spark_for(context, options, wrong_spark_master)
        self._runner = runner
        self._snapshot = Snapshot(location, context)
        self._folder: Location | None = None
        self._files = FilesInput(
            context, InputOptions(path=f"{location}/*{SUFFIX}", hive_partitioning=False)
        )
        self.cooperative = self._files.cooperative

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called before `partitions` on the peer that calls that, as `OneResultOutput.upgrade`
        is."""
        self._snapshot.upgrade(old)

    def partitions(self) -> Sequence[str]:
        """The files of the snapshot, which is made if there is none. Raises as `Snapshot.files`."""
        return self._snapshot.files(self._evaluate, self._where.url)

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader of a file.

        Raises:
            Unavailable: this worker does not see the snapshot.
        """
        if self._folder is None:
            self._folder = self._snapshot.folder
        if self._folder is None:
            raise Unavailable(
                f"{self._context.where}: the snapshot of the DataFrame is not in "
                f"{self._snapshot.location} on this worker: all workers must see the same folder"
            )
        return self._files.open(self._folder.path_of(partition), cursor)

    def close(self) -> None:
        """Leave the task; the snapshot stays."""
        self._files.close()

    def _evaluate(self, target: Target) -> None:
        options, context = self._options, self._context
        what = options.frame or f"format {options.format}"
        source = FrameSource(
            format=options.format, options=self._format_options, schema=options.schema
        )
        request = StageRequest(
            stage=what,
            source=source,
            params=options.arguments,
            master=self._where.url,
            spark_conf=self._where.conf,
            session_conf=EXACT_TYPES,
            name=f"onyx: {context.job_name}, {context.task}",
        )
        try:
            asked = target.asked(request)
            self._runner(asked, options.snapshot_timeout, Watch(context.wanted))
        except (UserFunctionError, Unavailable) as error:
            raise type(error)(f"{context.where}: snapshot of {what}: {error}") from error
