"""Where a stage finds its parts and puts its result: a directory, or an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from onyx.objects.urls import ObjectUrl
from onyx.plugins.directory_parts import DirectoryParts
from onyx.plugins.object_parts import ObjectParts
from onyx.plugins.parts import PartsPlace
from onyx.plugins.protocol import PluginContext
from onyx.spark.object_stage import ObjectWorkplace, run_object_stage
from onyx.spark.request import StageRequest, StageRunner
from onyx.spark.stage import Workplace, run_stage


class Results(Protocol):
    """Both, for one peer of one task."""

    @property
    def parts(self) -> PartsPlace:
        """Where the peers of the task write what the stage reads."""
        ...

    def run(self, request: StageRequest, runner: StageRunner, timeout_s: float) -> None:
        """See `stage.run_stage`."""
        ...


class DirectoryResults:
    """Parts and results that Spark reads and writes where they are."""

    def __init__(self, path: Path, context: PluginContext) -> None:
        self._place = Workplace(path, context.job, context.permitted, wanted=context.wanted)
        self.parts = DirectoryParts(self._place.parts, context)

    def run(self, request: StageRequest, runner: StageRunner, timeout_s: float) -> None:
        run_stage(self._place, self.parts.own, request, runner, timeout_s)


class ObjectResults:
    """Parts and results that are copied to this machine and back."""

    def __init__(self, url: ObjectUrl, context: PluginContext) -> None:
        self.parts = ObjectParts(url / "parts" / context.job, context, url)
        self._place = ObjectWorkplace(url, context, self.parts)

    def run(self, request: StageRequest, runner: StageRunner, timeout_s: float) -> None:
        run_object_stage(self._place, request, runner, timeout_s)
