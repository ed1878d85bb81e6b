"""The output half of a task with a Spark stage: what comes to it is written to Parquet parts.

Peers write like the output `spark`: a part is published whole and durable, and only then are its
segments acked. So what feeds the task may end while the stage has not run. The task is sealed when
all that feeds it has ended: then the last bundle is made, and what the stage makes of it ends what
the other half reads (`results`).
"""

from __future__ import annotations

from onyx.flow.batch import Segments
from onyx.flow.segment import SegmentFailure
from onyx.plugins.parts.columns import ColumnsPartsWriter
from onyx.plugins.parts.formats import ParquetFormat
from onyx.plugins.parts.names import bundle_part_name
from onyx.plugins.parts.writer import Part
from onyx.plugins.protocol import PluginContext
from onyx.plugins.roll_limits import RollLimits
from onyx.spark.child.request import StageRunner
from onyx.spark.child.runner import run_in_child
from onyx.spark.middle.bundler import Bundler, Limits
from onyx.spark.middle.misfits import TYPES, FrameTypes
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.parts import FrameParts, StagedFrames
from onyx.spark.middle.request import folder_of, request_of
from onyx.spark.types import for_spark


class StageSpool(ColumnsPartsWriter):
    """What the output half of a task with a Spark stage has in addition."""

    def __init__(
        self, context: PluginContext, options: MiddleOptions, runner: StageRunner = run_in_child
    ) -> None:
        """Raises NameNotRegistered, UserError: see `request.request_of`."""
        request, folder = request_of(context, options), folder_of(context, options)
        self._upstream = context.upstream[0]
        types = folder.location / TYPES
        self._types = {
            each: FrameTypes(types / each, options.schemas.get(each)) for each in context.upstream
        }
        self._bundler = Bundler(
            folder,
            Limits(options.bundle_segments, options.bundle_seconds, options.stage_timeout),
            request,
            runner,
            context,
        )
        self._frames_form = ParquetFormat(context, fit=for_spark)
        store = FrameParts(folder.store(context))
        super().__init__(store, self._frames_form, context, _roll_limits(options))

    @property
    def doing(self) -> str:
        """What the stage does now, in words; empty if it does not run."""
        return self._bundler.doing

    def choose(self, upstream: str) -> None:
        """What is written from now on comes from this task."""
        self._upstream = upstream

    def misfits(self, segments: Segments) -> list[SegmentFailure]:
        """The segments of the chosen task that do not fit to those before (`misfits`)."""
        return self._types[self._upstream].misfits(segments)

    def lead(self, leads: bool) -> None:
        """Whether this peer of the task is the one that runs the stage."""
        self._bundler.leads = leads

    def tick(self) -> None:
        """Publish what is due, and have the stage run. Raises like `Bundler.tend`."""
        super().tick()
        self._bundler.tend()

    def seal(self) -> None:
        """Make the last bundle. Raises like `Bundler.make_last`."""
        super().seal()
        self._bundler.make_last()

    def close(self) -> None:
        """A run of the stage ends soon. What it makes is made again by whoever goes on."""
        self._bundler.cancel()
        super().close()

    def _open(self) -> Part:
        name = bundle_part_name(self._context, self._frames_form.suffix)
        frames = StagedFrames(
            lambda frame: self._store.create(f"{frame}.{name}"),
            self._frames_form,
            lambda: self._upstream,
        )
        self._part = Part(frames, frames, self._context.clock.monotonic_s())
        return self._part


def _roll_limits(options: MiddleOptions) -> RollLimits:
    """A part is in one bundle, so it has not more segments than one."""
    most = options.roll_segments
    if options.bundle_segments is not None:
        most = min(most, options.bundle_segments)
    return RollLimits(options.roll_bytes, most, options.roll_seconds)
