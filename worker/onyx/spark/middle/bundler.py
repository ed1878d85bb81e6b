"""Makes bundles when they are due, and has the stage run over them, one after the other.

One peer of the task does, that of the lowest slot. Two may for a while, when the allocation
changes: what both make is the same to everybody else (`bundles`). The task goes on while the stage
runs, on a thread of its own: it writes parts of the next bundle and passes on what was made of the
one before. A run is polled, and ends early when nobody wants its result any more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

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
from onyx.plugins.attempts import BLOCKED_RETRY_S, Attempts
from onyx.plugins.protocol import Cursor, PluginContext, SealProgress
from onyx.spark.child.request import Frame, StageRequest, StageRunner, Watch
from onyx.spark.middle.bundles import Bundle, Bundles
from onyx.spark.middle.request import filled
from onyx.spark.middle.results import first_needed
from onyx.storage.file_system import is_full

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
