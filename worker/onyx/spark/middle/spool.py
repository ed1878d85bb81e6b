"""The output half of a task with a Spark stage: what comes to it is written to Parquet parts.

Peers write like the output `spark`: a part is published whole and durable, and only then are its
segments acked. So what feeds the task may end while the stage has not run. The task is sealed when
all that feeds it has ended: then the last bundle is made, and what the stage makes of it ends what
the other half reads (`results`).

What an output has made durable is a prefix of what it was given, in that order. Segments of several
upstream tasks come in turn, so the parts that they are written to, one for each task, end together.

A bundle is made when it is due, and the stage runs over one after the other. One peer of the task
does that (`Bundler`), the one of the lowest slot. Two may for a while, when the allocation
changes: what both make is the same to everybody else (`bundles`). The task goes on while the stage
runs, on a thread of its own: it writes parts of the next bundle and passes on what was made of the
one before. A run is polled, and ends early when nobody wants its result any more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import msgspec

from onyx.errors import (
    Blocked,
    Fenced,
    OnyxError,
    Unavailable,
    UserFunctionError,
    contained,
    describe,
)
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment, SegmentFailure
from onyx.ids import GroupId
from onyx.plugins.attempts import BLOCKED_RETRY_S, Attempts
from onyx.plugins.parts.folders import bundle_part_name
from onyx.plugins.parts.formats import ParquetFormat
from onyx.plugins.parts.writer import ColumnsBody, ColumnsFormat, ColumnsPartsWriter, Part
from onyx.plugins.protocol import Cursor, PluginContext, SealProgress, Token
from onyx.plugins.rolling import RollLimits
from onyx.spark.child.request import Frame, StageRequest, StageRunner, Watch
from onyx.spark.child.runner import run_in_child
from onyx.spark.middle.bundles import Bundle, Bundles
from onyx.spark.middle.frame_types import TYPES, FrameTypes
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.request import filled, folder_of, request_of
from onyx.spark.middle.results import first_needed
from onyx.spark.types import for_spark
from onyx.storage.file_system import is_full
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

    def sync(self) -> None:
        """Make durable that parts are published."""
        self._store.sync()

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


RETRY_S = 2.0


class BundleLimits(msgspec.Struct, frozen=True):
    """A bundle ends when it reaches any of these; without one it ends with the input."""

    segments: int | None
    seconds: float | None
    stage_timeout_s: float


class Bundler:
    """The bundles of one peer. Used by the task's thread; the stage runs on another one."""

    def __init__(
        self,
        folder: Bundles,
        limits: BundleLimits,
        request: StageRequest,
        runner: StageRunner,
        context: PluginContext,
    ) -> None:
        """`request` lacks the parts."""
        self.leads = False
        self._folder = folder
        self._limits = limits
        self._request = request
        self._runner = runner
        self._context = context
        self._number = 1
        """The number of the first bundle without a result, as far as is known."""
        self._ended = False
        self._rows: dict[str, int] = {}
        """The rows of parts that are in no bundle."""
        self._since_s: float | None = None
        """Since when there are some."""
        self._next_s = 0.0
        self._run: StageRun | None = None
        self._began_s = 0.0
        self._attempts = Attempts()
        self._problem = ""
        """The problem of the last run over the bundle, in words."""

    @property
    def doing(self) -> str:
        """What the stage does now, in words; empty if it does not run."""
        run = self._run
        if run is None:
            return self._problem
        attempt = self._attempts.failed + 1
        return f"Spark stage over bundle {run.bundle.number}, attempt {attempt}, is running"

    def tend(self) -> None:
        """Do what is due.

        Raises:
            UserFunctionError: the stage has failed too often.
            Unavailable: the file system failed; try again.
        """
        if not self.leads:
            self.cancel()
        elif self._run is not None:
            self._follow(self._run)
        elif not self._ended and self._now_s() >= self._next_s:
            self._next_s = self._now_s() + self._folder.poll_s
            bundle = self._next_bundle()
            if bundle is not None:
                self._start(bundle)

    def make_last(self) -> None:
        """Make the last bundle, of all that is in none; nothing happens if it stands.

        Raises:
            Unavailable: the file system failed; try again.
        """
        while not (waiting := self._folder.waiting(self._number)).ended:
            self._folder.make(Bundle(waiting.number, waiting.parts, last=True))

    def cancel(self) -> None:
        """Have a run end soon."""
        if self._run is not None:
            self._run.cancel()
            self._run = None

    def _next_bundle(self) -> Bundle | None:
        """The next one to run the stage over; None if there is none yet."""
        folder = self._folder
        while (bundle := folder.bundle(self._number)) is not None:
            if folder.result(self._number) is None:
                return bundle
            folder.tidy(bundle)
            if bundle.last:
                self._ended = True
                return None
            self._number += 1
        return self._make_if_due()

    def _make_if_due(self) -> Bundle | None:
        limits = self._limits
        if limits.segments is None and limits.seconds is None:
            return None
        waiting = self._folder.waiting(self._number)
        if not waiting.parts:
            self._since_s = None
            return None
        if self._since_s is None:
            self._since_s = self._now_s()
        parts = waiting.parts
        if limits.segments is not None:
            known, rows_in = self._rows, self._folder.rows_in
            self._rows = {each: known.get(each) or rows_in(each) for each in parts}
        full = limits.segments is not None and sum(self._rows.values()) >= limits.segments
        old = limits.seconds is not None and self._now_s() >= self._since_s + limits.seconds
        if not (full or old):
            return None
        self._since_s = None
        return self._folder.make(Bundle(waiting.number, parts))

    def _start(self, bundle: Bundle) -> None:
        context = self._context
        self._began_s = self._now_s()
        self._run = StageRun(
            self._folder,
            bundle,
            self._request,
            context.upstream,
            self._runner,
            self._limits.stage_timeout_s,
            context.wanted,
            context.cursors,
        )
        self._run.start()

    def _follow(self, run: StageRun) -> None:
        progress = run.take_progress()
        if progress is not None:
            self._context.progress(progress)
        try:
            if not run.ended():
                return
        except Fenced:
            self._run = None
            return
        except OnyxError as error:
            self._run = None
            self._failed(run, error)
            return
        self._run = None
        self._attempts, self._problem = Attempts(), ""
        self._context.stage_ended(self._now_s() - self._began_s, True)

    def _failed(self, run: StageRun, error: OnyxError) -> None:
        context, now_s = self._context, self._now_s()
        context.stage_ended(now_s - self._began_s, False)
        if isinstance(error, Blocked):
            self._next_s, self._problem = now_s + BLOCKED_RETRY_S, describe(error)
            return
        attempts = self._attempts
        again_s = attempts.next_s(error, now_s, context.attempts_max, RETRY_S)
        self._problem = (
            f"stage {self._request.stage} over bundle {run.bundle.number} failed "
            f"{attempts.words(error)}"
        )
        if again_s is None:
            raise UserFunctionError(f"{context.where}: {self._problem}") from error
        self._next_s = again_s

    def _now_s(self) -> float:
        return self._context.clock.monotonic_s()


class StageRun:
    """One run of a stage over a bundle, on a thread of its own. Methods are called by the task's
    thread."""

    def __init__(
        self,
        folder: Bundles,
        bundle: Bundle,
        request: StageRequest,
        upstream: Sequence[str],
        runner: StageRunner,
        timeout_s: float,
        wanted: Callable[[], bool],
        cursors: Callable[[], Sequence[Cursor]] = tuple,
    ) -> None:
        """
        Args:
            cursors: see `PluginContext`.
            request: its frames lack their parts.
            upstream: the task of each frame.
            timeout_s: longest run, in seconds.
            wanted: whether the task is to go on.
        """
        self.bundle = bundle
        self._folder = folder
        self._request = request
        self._upstream = upstream
        self._runner = runner
        self._timeout_s = timeout_s
        self._wanted = wanted
        self._cursors = cursors
        self._error: Exception | None = None
        self._latest: SealProgress | None = None
        self._cancelled = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin, on another thread."""
        name = f"onyx-stage-{self._request.name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def cancel(self) -> None:
        """Have it end soon, and publish nothing."""
        self._cancelled.set()

    def ended(self) -> bool:
        """Whether it has ended.

        Raises:
            UserFunctionError: the stage has failed.
            OnyxError: Spark or the file system has.
        """
        if not self._ended.is_set():
            return False
        if self._error is not None:
            raise self._error
        return True

    def take_progress(self) -> SealProgress | None:
        """How far it is, if that is news."""
        latest, self._latest = self._latest, None
        return latest

    def _run(self) -> None:
        try:
            self._make_result()
        except BaseException as raised:
            error = contained(raised)
            if is_full(error):
                error = Blocked(f"{self._folder.location}: {error}")
            self._error = error if isinstance(error, OnyxError) else Unavailable(describe(error))
        finally:
            self._ended.set()

    def _make_result(self) -> None:
        folder, bundle = self._folder, self.bundle
        with folder.target(bundle) as target:
            files: tuple[tuple[str, int], ...] = ()
            if bundle.parts:
                asked = msgspec.structs.replace(self._request, frames=self._frames())
                watch = Watch(self._is_wanted, self._see)
                self._runner(target.asked(asked), self._timeout_s, watch)
                files = target.settle(asked.master) if self._is_wanted() else ()
            if not self._is_wanted():
                target.drop()
                return
            folder.publish(files, bundle)
        folder.tidy(bundle)
        with contextlib.suppress(Unavailable):  # the next run does it
            folder.drop_results(first_needed(self._cursors()))

    def _frames(self) -> tuple[Frame, ...]:
        """The frames of the request, with the parts of the bundle."""
        parts = self._folder.frames(self.bundle, self._upstream)
        return filled(self._request.frames, parts, f"bundle {self.bundle.number}")

    def _is_wanted(self) -> bool:
        return self._wanted() and not self._cancelled.is_set()

    def _see(self, progress: SealProgress) -> None:
        self._latest = progress
