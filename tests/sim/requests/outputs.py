"""Outputs of a job that takes requests. Under at-least-once parts are seen without a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.windows.process import Parts
from tests.sim.windows.storage import PlaceOf, Staged

from onyx.flow.segment import Segment
from onyx.plugins.parts.formats import JsonLinesFormat
from onyx.plugins.protocol import PluginContext
from onyx.plugins.rolling import RollLimits
from onyx.task.task import BatchTask

if TYPE_CHECKING:
    from tests.sim.requests.process import RequestProcess


class StagedAtOnce(Staged):
    def publish(self) -> None:
        self._writer.finish(self.token())


class PlaceAtOnce(PlaceOf):
    """A `PartStore` whose parts may be published without a commit."""

    def create(self, name: str) -> StagedAtOnce:
        self._made += 1
        return StagedAtOnce(self, f"{self._group}-{self._number}-{self._made}")


class NumberedParts(Parts):
    """Says what is written, in its order."""

    def __init__(
        self,
        place: PlaceOf,
        form: JsonLinesFormat,
        context: PluginContext,
        limits: RollLimits,
        process: RequestProcess,
    ) -> None:
        super().__init__(place, form, context, limits)
        self._process = process

    def write(self, segments: list[Segment]) -> None:
        super().write(segments)
        context = self._context
        task = self._process.tasks.get(context.peer)
        if context.task == "write" and isinstance(task, BatchTask) and task.wired:
            version = task.allocation.wiring.version
            self._process.requests.checks.written(version, segments)
