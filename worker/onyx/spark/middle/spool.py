"""The output half of a task with a Spark stage: what comes to it is written to Parquet parts.

Peers write like the output `spark`: a part is published whole and durable, and only then are its
segments acked. So what feeds the task may end while the stage has not run. The task is sealed when
all that feeds it has ended: then the last bundle is made, and what the stage makes of it ends what
the other half reads (`results`).

What an output has made durable is a prefix of what it was given, in that order. Segments of several
upstream tasks come in turn, so the parts that they are written to, one for each task, end together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment, SegmentFailure
from onyx.ids import GroupId
from onyx.plugins.parts.folders import bundle_part_name
from onyx.plugins.parts.formats import ParquetFormat
from onyx.plugins.parts.writer import ColumnsBody, ColumnsFormat, ColumnsPartsWriter, Part
from onyx.plugins.protocol import PluginContext, Token
from onyx.plugins.rolling import RollLimits
from onyx.spark.child.request import StageRunner
from onyx.spark.child.runner import run_in_child
from onyx.spark.middle.bundler import BundleLimits, Bundler
from onyx.spark.middle.frame_types import TYPES, FrameTypes
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.request import folder_of, request_of
from onyx.spark.types import for_spark
from onyx.storage.staging.interface import PartStore, StagedPart


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
            BundleLimits(options.bundle_segments, options.bundle_seconds, options.stage_timeout),
            request,
            runner,
            context,
        )
        self._frames_form = ParquetFormat(context, fit=for_spark)
        store = FramesStore(folder.store(context))
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


_PARTS = "parts"


class FramesStore:
    """A store of parts (`staging.interface.PartStore`) whose tokens stand for several."""

    def __init__(self, store: PartStore) -> None:
        self._store = store
        self.size_bytes_max = store.size_bytes_max

    def create(self, name: str) -> StagedPart:
        """One of them."""
        return self._store.create(name)

    def finish(self, token: Token) -> None:
        """Publish all of a token."""
        for each in token[_PARTS]:
            self._store.finish(each)

    def fence(self, live: Sequence[GroupId]) -> None:
        """Make it impossible for incarnations that are not `live` to publish what they staged."""
        self._store.fence(live)

    def sweep(self) -> None:
        """Remove what writers have left staged whose names begin as this one's."""
        self._store.sweep()

    def explained(self) -> AbstractContextManager[None]:
        """Raises errors of the system as errors of this task."""
        return self._store.explained()

    def close(self) -> None:
        """Remove what is staged and not published, as far as that is possible now."""
        self._store.close()


class StagedFrames:
    """Parts that are published together (`staging.interface.Staged`), and what is written to them
    (`parts.columns.ColumnsBody`)."""

    def __init__(
        self, create: Callable[[str], StagedPart], form: ColumnsFormat, chosen: Callable[[], str]
    ) -> None:
        """
        Args:
            create: makes the part of a frame.
            chosen: the frame that is written to now.
        """
        self._create = create
        self._form = form
        self._chosen = chosen
        self._parts: dict[str, tuple[StagedPart, ColumnsBody]] = {}
        self._published: set[str] = set()

    def add(self, segments: list[Segment]) -> None:
        """Add segments of the chosen frame."""
        self._body().add(segments)

    def add_columns(self, columns: Columns) -> None:
        """Adds what `add` does, in columns."""
        self._body().add_columns(columns)

    def size_bytes(self) -> int:
        """The size of all frames."""
        return sum(body.size_bytes() for _, body in self._parts.values())

    def finish(self) -> None:
        """Write what is left of all frames."""
        for _, body in self._parts.values():
            body.finish()

    def make_room(self) -> None:
        """Hand over what was written, so that it does not fill memory."""
        for staged, _ in self._parts.values():
            staged.make_room()

    def settle(self) -> None:
        """Make the staged part durable."""
        for staged, _ in self._parts.values():
            staged.settle()

    def publish(self) -> None:
        """Publish them one by one. One that is published may be read and removed at once, so it is
        not looked for again."""
        for frame, (staged, _) in self._parts.items():
            if frame not in self._published:
                staged.publish()
                self._published.add(frame)

    def token(self) -> Token:
        """What any worker needs to publish a settled part (`PartStore.finish`)."""
        return {_PARTS: [dict(staged.token()) for staged, _ in self._parts.values()]}

    def drop(self) -> None:
        """Give the part up, as far as that is possible now."""
        for staged, _ in self._parts.values():
            staged.drop()

    def _body(self) -> ColumnsBody:
        frame = self._chosen()
        if frame not in self._parts:
            staged = self._create(frame)
            self._parts[frame] = staged, self._form.begin(staged.file)
        return self._parts[frame][1]
