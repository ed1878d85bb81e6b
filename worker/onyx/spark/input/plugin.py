"""Input `spark`: the rows of a DataFrame, evaluated once and read by all peers of the task.

    <path>/<job>.<task>/    what runs have written, a folder each, and `_onyx.json`, which names the
                            files of the snapshot; they are the partitions

A DataFrame has no stable positions: evaluated again, it may have its rows in another order, or
others. So the peer of the lowest slot evaluates it once, and the rows have the positions that they
have in these files. The reader is that of the input `files`.

`_onyx.json` is created on the condition that there is none, so the first snapshot that stands is
final: whoever comes later, after any crash, reads it, and a second one is dropped. Hence no run
needs a fence. Whoever makes the snapshot removes what others have written. A job that upgrades
another one goes on in the snapshot of that: it names the files of that.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from onyx.base.structs import prepared, stored
from onyx.errors import OnyxError, Unavailable, UserError, UserFunctionError
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.options import folder_at
from onyx.plugins.parts.folders import folder_name
from onyx.plugins.protocol import Cursor, Input, PluginContext, Reader, UpgradedJob
from onyx.spark.child.request import EXACT_TYPES, FrameSource, StageRequest, StageRunner, Watch
from onyx.spark.child.runner import run_in_child
from onyx.spark.input.options import SparkInputOptions
from onyx.spark.located_options import given_options
from onyx.spark.result_files import MANIFEST, SUFFIX
from onyx.spark.session.masters import spark_for, wrong_spark_master
from onyx.spark.target import Target, target_in
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
        self._snapshot = FrameSnapshot(location, context)
        self._folder: Location | None = None
        self._files = FilesInput(
            context, FilesInputOptions(path=f"{location}/*{SUFFIX}", hive_partitioning=False)
        )
        self.cooperative = self._files.cooperative

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called before `partitions` on the peer that calls that, as `OneResultOutput.upgrade`
        is."""
        self._snapshot.upgrade(old)

    def partitions(self) -> Sequence[str]:
        """The files of the snapshot, which is made if there is none. Raises as
        `FrameSnapshot.files`."""
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


@prepared
class SnapshotManifest(msgspec.Struct, frozen=True):
    """What is in `_onyx.json`."""

    snapshot: str
    """Name of the folder with the files: its own, or that of the job that was upgraded."""
    files: tuple[str, ...]
    """Names of the files in that folder, in the order of the rows."""


Evaluate = Callable[[Target], None]
"""Write the DataFrame as Parquet files. Raises what `child.request.StageRunner` does."""


class FrameSnapshot(msgspec.Struct):
    """The snapshot of one input task of one job. Any method may raise UserError if something is
    damaged, or Unavailable."""

    location: Location
    context: PluginContext

    @property
    def folder(self) -> Location | None:
        """Where the files are; None before there is a snapshot."""
        found = self._read(folder_name(self.context))
        return None if found is None else self.location / found.snapshot

    def files(self, evaluate: Evaluate, master: str) -> list[str]:
        """Names of the files; evaluates the DataFrame unless there is a snapshot.

        Args:
            master: the Spark that evaluates, for messages.

        Raises:
            UserFunctionError: the DataFrame failed.
            Unavailable: Spark or the store failed; try again.
            Fenced: the task is to stop.
        """
        name = folder_name(self.context)
        found = self._read(name)
        if found is None:
            found = self._made(name, evaluate, master)
        elif found.files and not (self.location / found.snapshot).exists(found.files[0]):
            raise UserError(
                f"{self.context.where}: the snapshot {self.location / found.snapshot} is gone, in "
                f"which this job reads on ({self.location / name}/{MANIFEST}): put it back"
            )
        return list(found.files)

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Go on in the snapshot of the job that this one upgrades, if that has begun.

        Raises:
            UserError: it has begun, and its snapshot is gone.
        """
        name = folder_name(self.context)
        upgraded = old() if self._read(name) is None else None
        if upgraded is None:
            return
        before = folder_name(replace(self.context, job=upgraded.job))
        found = self._read(before)
        if found is None and upgraded.began:
            raise UserError(
                f"{self.context.where}: the snapshot {self.location / before} of job "
                f"{upgraded.job} is gone, which this job goes on reading: put it back, or say "
                "`initialize` for this task in `upgrade.tasks` to read a new one"
            )
        if found is not None:
            self._create(name, found)

    def _made(self, name: str, evaluate: Evaluate, master: str) -> SnapshotManifest:
        try:
            with target_in(self.location / name, f"run-{uuid.uuid4().hex[:12]}") as target:
                evaluate(target)
                files = tuple(file for file, _ in target.settle(master))
                stands = self._create(name, SnapshotManifest(name, files))
        except OnyxError:
            other = self._read(name)
            if other is None:
                raise
            return other  # which has removed what was being written here
        self._remove_others(stands)
        return stands

    def _remove_others(self, stands: SnapshotManifest) -> None:
        """Remove what killed workers have left, and slower ones are writing, as far as that is
        possible now."""
        location = self.location / stands.snapshot
        named = {name.partition("/")[0] for name in stands.files}
        with contextlib.suppress(OnyxError):
            for each in location.entries() or ():
                if each.is_folder and each.name not in named:
                    location.remove_tree(each.name)

    def _create(self, name: str, mine: SnapshotManifest) -> SnapshotManifest:
        """What stands: ours, or the one that came first."""
        (self.location / name).create(MANIFEST, msgspec.json.encode(mine))
        stands = self._read(name)
        assert stands is not None, "it was made, here or by another worker"
        return stands

    def _read(self, name: str) -> SnapshotManifest | None:
        data = (self.location / name).read(MANIFEST)
        if data is None:
            return None
        path = f"{self.context.where}: {self.location / name}/{MANIFEST}"
        manifest: SnapshotManifest = stored(data, SnapshotManifest, path)
        return manifest
