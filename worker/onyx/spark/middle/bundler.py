"""Makes bundles when they are due, and has the stage run over them, one after the other.

One peer of the task does, that of the lowest slot. Two may for a while, when the allocation
changes: what both make is the same to everybody else (`bundles`).
"""

from __future__ import annotations

import msgspec

from onyx.errors import Blocked, Fenced, OnyxError, UserFunctionError, describe
from onyx.plugins.attempts import BLOCKED_RETRY_S, Attempts
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import StageRequest, StageRunner
from onyx.spark.middle.bundles import Bundle, Bundles
from onyx.spark.middle.stage_run import StageRun

RETRY_S = 2.0


class Limits(msgspec.Struct, frozen=True):
    """A bundle ends when it reaches any of these; without one it ends with the input."""

    segments: int | None
    seconds: float | None
    stage_timeout_s: float


class Bundler:
    """The bundles of one peer. Used by the task's thread; the stage runs on another one."""

    def __init__(
        self,
        folder: Bundles,
        limits: Limits,
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
