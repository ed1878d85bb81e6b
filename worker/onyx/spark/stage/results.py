"""Where a stage finds its parts and puts its result: a directory, or an object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onyx.ids import GroupId, JobId
from onyx.plugins.parts.names import run_name
from onyx.plugins.parts.objects import ObjectParts
from onyx.plugins.parts.stores import PartStore
from onyx.plugins.protocol import PluginContext, UpgradedJob
from onyx.spark.child.request import StageRequest, StageRunner
from onyx.spark.stage import object_stage, versions
from onyx.spark.stage.directory_stage import DirectoryNotes, StageParts, Workplace, run_stage
from onyx.spark.stage.frames import folder_of, result_of
from onyx.spark.stage.object_stage import ObjectNotes, ObjectWorkplace, run_object_stage
from onyx.storage.objects.urls import ObjectUrl


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


def directory_results(
    path: Path, context: PluginContext, frame: str | None, appends: bool
) -> Results:
    """Parts and results that Spark reads and writes where they are."""
    place = Workplace(
        path,
        context.job,
        context.permitted,
        wanted=context.wanted,
        appends=appends,
        seen=context.progress,
        run=run_name(context),
    )
    own = place.of(frame)

    def parts_of(context: PluginContext) -> StageParts:
        result = result_of(path, context.job, appends)
        return StageParts(own.parts_of(context.job), context, result)

    def run(request: StageRequest, runner: StageRunner, timeout_s: float) -> None:
        run_stage(place, parts.own, request, runner, timeout_s)

    parts = parts_of(context)
    return Results(context, parts, parts_of, DirectoryNotes(own), run)


def object_results(
    url: ObjectUrl, context: PluginContext, frame: str | None, appends: bool
) -> Results:
    """Parts and results in a store, which executors read and write."""
    own = folder_of(url, frame)

    def parts_of(context: PluginContext) -> ObjectParts:
        return ObjectParts(object_stage.parts_of(own, context.job), context, own)

    def run(request: StageRequest, runner: StageRunner, timeout_s: float) -> None:
        run_object_stage(place, request, runner, timeout_s)

    parts = parts_of(context)
    place = ObjectWorkplace(url, context, parts, appends=appends)
    return Results(context, parts, parts_of, ObjectNotes(own), run)
