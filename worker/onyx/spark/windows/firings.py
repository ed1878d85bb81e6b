"""Firings of a window by Spark: it aggregates what extents have, in a run of our own function.

Nothing waits: while a file is written or Spark runs, the page is `PENDING`. A task reads
nothing meanwhile, as ever between two pages, so a firing is one moment however long Spark takes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial

import msgspec

from onyx.base.seams import Clock, SystemClock
from onyx.errors import Blocked, Fenced, Unavailable, UserFunctionError, describe
from onyx.keystate.extents import Number
from onyx.plugins.attempts import BLOCKED_RETRY_S, Attempts
from onyx.plugins.protocol import SealProgress
from onyx.spark.child.request import FrameSource, StageRequest, StageRunner, Watch
from onyx.spark.windows.plan import AGGREGATE, DUE, Plan
from onyx.spark.windows.spool import Spool, least, new_result
from onyx.storage.file_system import is_full

logger = logging.getLogger("onyx.windows")
RUN_TIMEOUT_S = 3_600.0
RETRY_S = 1.0
"""Before a run that fails is repeated; what cannot be reached is left alone for longer."""


class Spark(msgspec.Struct, frozen=True):
    """Where and how Spark runs, and who follows it."""

    runner: StageRunner
    aside: Callable[[Callable[[], None]], Future[None]]
    """Runs something that takes long, on a thread of its own."""
    master: str
    conf: dict[str, str]
    name: str
    """Shown by Spark."""
    wanted: Callable[[], bool]
    """Whether the task still has its state."""
    seen: Callable[[SealProgress], None] = lambda _: None
    clock: Clock = msgspec.field(default_factory=SystemClock)
    attempts_max: int = 3
    """The attempts of a run that fails, the first one included; see `plugins.attempts`."""


class Aggregator(msgspec.Struct):
    """The run of a window, if there is one."""

    where: str
    """Begins messages."""
    spark: Spark
    folder: Spool
    words: str = ""
    """What runs, for people; empty if nothing does."""
    due: Number | None = None
    """The watermark before which nothing in the last result fires (`SpooledPart.due`)."""

    def pages(self, plan: Plan) -> Iterator[str | None]:
        """Run a plan: None while it runs, then the name of its result.

        Raises:
            UserFunctionError: Spark cannot compute it, or took too long.
            Unavailable: Spark, or its executors, failed too often.
        """
        attempts = Attempts()
        while True:
            name = new_result()
            logger.info("%s fires: Spark at %s aggregates %s", self.where, self.spark.master,
                        plan.words())  # fmt: skip
            running = self.spark.aside(partial(self._run, plan, name))
            self.words = f"Spark aggregates {self.where}"
            while not running.done():
                yield None
            try:
                running.result()
                self.words = ""
                yield name
                return
            except Fenced:  # the task has lost its state, and nobody asks for the next page
                while True:
                    yield None
            except (UserFunctionError, Unavailable) as error:
                again_s = self._again_s(attempts, error)
                while self.spark.clock.monotonic_s() < again_s:
                    yield None

    def _again_s(self, attempts: Attempts, error: UserFunctionError | Unavailable) -> float:
        """When it is to run again. Raises the error with what it is about: never."""
        now_s = self.spark.clock.monotonic_s()
        if isinstance(error, Blocked) or is_full(error):
            self.words = f"Spark does not aggregate {self.where}: {describe(error)}"
            return now_s + BLOCKED_RETRY_S
        # What Spark says of lost executors cannot be told from what it says of a function.
        again_s = attempts.next_s(error, now_s, self.spark.attempts_max, RETRY_S)
        if again_s is None:
            raise type(error)(f"{self.where}, by Spark: {error}") from error
        self.words = f"Spark over {self.where} failed {attempts.words(error)}"
        logger.warning("%s, trying again", self.words)
        return again_s

    def _run(self, plan: Plan, name: str) -> None:
        request = StageRequest(
            stage=AGGREGATE,
            source=FrameSource(),
            params=plan.params(),
            master=self.spark.master,
            spark_conf=self.spark.conf,
            name=f"{self.spark.name}, {self.where}",
        )
        watch = Watch(self.spark.wanted, self._seen)
        with self.folder.target(name) as target:
            self.spark.runner(target.asked(request), RUN_TIMEOUT_S, watch)
            self.folder.settle(target, self.spark.master)
        self.due = least(self.folder, name, DUE) if plan.sessions is not None else None

    def _seen(self, progress: SealProgress) -> None:
        self.spark.seen(progress)
        if progress.tasks:
            percent = 100 * progress.tasks_done // progress.tasks
            self.words = f"Spark aggregates {self.where}: {percent} % of its tasks are done"
