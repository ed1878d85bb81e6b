"""Where a stage finds its parts and puts its result: a folder, or a prefix in an object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from onyx.ids import GroupId, JobId
from onyx.plugins.options import folder_at
from onyx.plugins.parts.names import run_name
from onyx.plugins.parts.stores import writer_of
from onyx.plugins.protocol import PluginContext, UpgradedJob
from onyx.spark.child.request import StageRequest, StageRunner, Watch
from onyx.spark.stage import versions
from onyx.spark.stage.directory_stage import Workspace, run_stage
from onyx.spark.stage.frames import folder_of, result_of
from onyx.spark.stage.object_stage import ObjectWorkspace, run_object_stage
from onyx.spark.stage.result_folder import StageParts
from onyx.storage.interface import Location
from onyx.storage.s3 import Prefix
from onyx.storage.staging.interface import PartStore
from onyx.storage.staging.s3 import ObjectParts


@dataclass(slots=True)
class Results:
    """Both, for one peer of one task."""

    context: PluginContext
    parts: PartStore
    """Where the peers of the task write what the stage reads."""
    parts_of: Callable[[PluginContext], PartStore]
    """The parts in the job of a context."""
    notes: versions.Notes
    run: Callable[[StageRequest, StageRunner, float], None]
    """Runs a stage and publishes its result."""
    _after: tuple[JobId, ...] = field(default=(), init=False)

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called on every peer before it is ready, from a thread that may block: make sure that the
        result will hold the parts of the old job and of those before it."""
        self._after = versions.upgrade(self.notes, self.context.job, old)

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence the writers of the parts, also those of the old job: its peers may not know yet
        that it was killed."""
        self.parts.fence(live)
        for job in self._after[:1]:
            self.parts_of(replace(self.context, job=job)).fence(live)


def results_at(context: PluginContext, path: str, frame: str | None, appends: bool) -> Results:
    """Parts and results at the path of a task. Raises UserError: nothing can be there."""
    location = folder_at(context, path)
    notes = versions.Notes(folder_of(location, frame))
    if isinstance(location, Prefix):
        return _in_store(location, context, notes, appends)
    return _in_folder(location, context, notes, appends)


def _in_folder(
    location: Location, context: PluginContext, notes: versions.Notes, appends: bool
) -> Results:
    """Parts and results that Spark reads and writes where they are."""
    work = Workspace(
        location,
        context.job,
        context.permitted,
        watch=Watch(context.wanted, context.progress),
        appends=appends,
        run=run_name(context),
    )

    def parts_of(context: PluginContext) -> StageParts:
        folder, result = notes.where(context.job).local, result_of(location, context.job, appends)
        assert folder is not None, "the location is a folder"
        assert result.local is not None, "the location is a folder"
        return StageParts(folder, writer_of(context), result.local)

    def run(request: StageRequest, runner: StageRunner, timeout_s: float) -> None:
        run_stage(work, parts.own, request, runner, timeout_s)

    parts = parts_of(context)
    return Results(context, parts, parts_of, notes, run)


def _in_store(
    location: Prefix, context: PluginContext, notes: versions.Notes, appends: bool
) -> Results:
    """Parts and results in a store, which executors read and write."""

    def parts_of(context: PluginContext) -> ObjectParts:
        folder = notes.where(context.job)
        assert isinstance(folder, Prefix), "it is in a store"
        return folder.staging(writer_of(context))

    def run(request: StageRequest, runner: StageRunner, timeout_s: float) -> None:
        run_object_stage(work, request, runner, timeout_s)

    parts = parts_of(context)
    result = result_of(location, context.job, appends)
    assert isinstance(result, Prefix), "it is in a store"
    work = ObjectWorkspace(location, context, parts, result.url, run_name(context))
    return Results(context, parts, parts_of, notes, run)
