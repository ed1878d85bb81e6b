"""A window of which Spark aggregates the groups. See docs/decisions/0039.

The peer has what is small: which files are the state of which extents, watermarks, timers, what has
fired. The values of groups are rows in files (`contents`), and a firing is a run of Spark over them
(`Aggregator`). Everything else is as in `windows.window`: the same events, records and order.

Nothing waits: while a file is written or Spark runs, the page is `PENDING`. A task reads
nothing meanwhile, as ever between two pages, so a firing is one moment however long Spark takes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from onyx.base.seams import Clock, SystemClock
from onyx.errors import Blocked, Fenced, Unavailable, UserError, UserFunctionError, describe
from onyx.keystate.buckets import Frozen
from onyx.keystate.coded import Keyed
from onyx.keystate.extents import Extent, Number
from onyx.keystate.groups import Shards
from onyx.keystate.records import (
    ClearExtent,
    EventType,
    Record,
    Records,
    SpooledEmitted,
    SpooledFired,
    SpooledPart,
    StateFiles,
    TimerDue,
    WatermarkReached,
    append,
)
from onyx.keystate.selection import Selection
from onyx.plugins.attempts import BLOCKED_RETRY_S, Attempts
from onyx.plugins.protocol import SealProgress
from onyx.reports.measures import StateMeasures
from onyx.spark.child.request import FrameSource, StageRequest, StageRunner, Watch
from onyx.spark.windows.contents import WindowContents
from onyx.spark.windows.emitting import Emitting, FiringReader
from onyx.spark.windows.plan import AGGREGATE, DUE, Plan
from onyx.spark.windows.spool import Spool, least, new_result
from onyx.storage.file_system import is_full
from onyx.windows.compiled import CompiledWindow
from onyx.windows.firing import PENDING, AnyFiring, FiringPages
from onyx.windows.prepared import WindowInput
from onyx.windows.triggers.timers import WindowTimers
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.watermarks import ShardWatermarks

logger = logging.getLogger("onyx.windows")
RUN_TIMEOUT_S = 3_600.0
RETRY_S = 1.0
"""Before a run that fails is repeated; what cannot be reached is left alone for longer."""


class SparkRuns(msgspec.Struct, frozen=True):
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


class SparkWindow:
    """Implements `windows.running.RunningWindow`."""

    def __init__(
        self,
        compiled: CompiledWindow,
        grouped: bool,
        shards: Shards,
        folder: Spool,
        spark: SparkRuns,
        page_max: int,
    ) -> None:
        """`page_max`: firings of one page."""
        window = compiled.window
        self.compiled = compiled
        self._id = window.id
        self._shards = shards
        self._watermarks = ShardWatermarks(window.id, False, compiled.lateness is not None, shards)
        self._contents = WindowContents(compiled, shards, folder, self._watermarks)
        self._waiting = self._contents.waiting
        bounds, holdings = self._contents.assigner.bounds, self._contents.holdings
        reader = FiringReader(compiled.aggregation, bounds, folder, page_max, shards.apart())
        self._emitting = Emitting(compiled, grouped, reader, holdings, self._watermarks)
        self._timers = WindowTimers(window.id, compiled.triggers)
        where = f"window {window.id} of task {window.task}"
        self._aggregator = Aggregator(where, spark, folder)

    @property
    def doing(self) -> str:
        """What is being computed elsewhere, in words; empty if nothing is."""
        return self._aggregator.words

    # Events.

    def add(
        self, segments: object, taken: WindowInput, keys: Keyed, now_ms: int
    ) -> tuple[list[tuple[int, AnyFiring]], list[int]]:
        """Take a batch: nothing fires; indices of late segments."""
        shards, late = self._contents.add(keys, taken)
        if self._timers:
            self._timers.start(shards, now_ms)
        return [], late

    def measures(self) -> StateMeasures:
        """Its timers: nobody counts what Spark has in files. From any thread."""
        return self._timers.measures()

    def settle(self) -> None:
        """Nothing has to be."""

    def advance(self, watermark: Number) -> FiringPages:
        """Extents that the watermark has passed fire, all that are due in one run."""
        self._watermarks.advance(watermark)
        yield from self._emitting.left()
        trigger = self._waiting.watching
        if trigger is not None:
            passed = self._waiting.passed(watermark)
            yield from self._fire(trigger, "watermark", passed, self._known(), watermark)
        self._expire(watermark)

    def tick(self, now_ms: int) -> FiringPages:
        """Triggers whose timer is due for some shard fire for all, in one run."""
        left = self._emitting.adopt()
        yield from self._emitting.left()
        for trigger, _ in self._timers.due(now_ms):
            known = self._known()
            if (trigger.name, "timer-tick") not in left:
                yield from self._fire(trigger, "timer-tick", self._contents.extents(known), known)
            for shard in sorted(known):
                self._timers.arm(trigger, shard, now_ms)

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do: at once if a result is to be emitted further."""
        return 0 if self._emitting.pending else self._timers.next_tick_ms()

    def complete(self, shards: Collection[int], now_ms: int) -> FiringPages:
        """The job ends for these shards: every trigger that does so at the end fires for all their
        extents."""
        yield from self._emitting.left()
        for trigger in (each for each in self.compiled.triggers if each.at_end != "never"):
            mine = self._emitting.unfinished(trigger.name, shards)
            yield from self._fire(trigger, "job-completed", self._contents.extents(mine), mine)
        self._timers.restart(shards, now_ms)

    def query(self, asked: Selection, extents_max: int | None) -> list[Extent]:
        """Raises UserError: whoever asks reads the files (`windows.answers`), and no peer waits."""
        raise UserError(f"window {self._id} has engine: spark, and no peer has its states")

    def look_up(self, keys: Sequence[Any]) -> list[list[Any]]:
        """Raises UserError: no peer has them."""
        raise UserError(f"window {self._id} has engine: spark, and no peer has its states")

    # Segments come.

    def _known(self) -> frozenset[int]:
        return frozenset(self._shards.known)

    def _expire(self, watermark: Number) -> None:
        """Forget extents that a watermark has passed by more than the lateness allowed."""
        for number in self._waiting.expired(watermark):
            self._contents.remove(ClearExtent(self._id, number), [number], self._known())

    # Firing.

    def _fire(
        self,
        trigger: Trigger,
        event_type: EventType,
        numbers: list[int],
        shards: frozenset[int],
        watermark: Number | None = None,
    ) -> FiringPages:
        """A trigger fires for some extents of some shards."""
        if not numbers or not shards:
            return
        while self._contents.unwritten():
            yield PENDING
        by_watermark = event_type == "watermark"
        evicts = trigger.forgets if by_watermark else trigger.refinement.evicts
        plan = self._contents.plan(numbers, shards, watermark if by_watermark else None, evicts)
        if not plan.pieces:
            return
        made = None
        for made in self._aggregator.pages(plan):
            if made is None:
                yield PENDING
        assert made is not None, "it ends with a result"
        fired = SpooledFired(self._id, trigger.name, made, event_type, numbers, watermark)
        # Asked before the extents lose the files: what Spark made of them may have as many rows.
        source_rows = self._contents.holdings.rows(numbers)
        self._contents.remove(fired, numbers, shards)
        due = self._aggregator.due
        unfired = evicts and by_watermark and due is not None
        if unfired or not evicts:
            part = SpooledPart(
                self._id, made, numbers, list(plan.columns), source_rows, self._contents.seq,
                partial=True, emptied=trigger.refinement.discards, settled=by_watermark,
                unfired=unfired, due=due,
            )  # fmt: skip
            self._contents.hold(part, shards)
        yield from self._emitting.emit(made, trigger.name, event_type, watermark, shards)

    # State is recorded and restored.

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._contents.seal()
        changes, self._contents.changes = self._contents.changes, []
        changes += self._emitting.take_changes()
        for shards, record in changes:
            for shard in sorted(shards):
                append(records, shard, record)
        self._timers.take_changes(records)
        self._watermarks.take_changes(records)

    def take_files(self) -> list[StateFiles]:
        """Files that belong to the changes taken last."""
        return self._contents.take_files()

    def snapshot(
        self, frozen: Frozen, shards: Collection[int]
    ) -> Callable[[int], Iterator[Record]]:
        """What gives the whole state of each of these shards, as it is now."""
        found: Records = {}
        self._contents.holdings.snapshot(shards, found)
        self._emitting.snapshot(shards, found)
        self._timers.snapshot(shards, found)
        self._watermarks.snapshot(shards, found)
        return lambda shard: iter(found.get(shard, ()))

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record."""
        self._contents.restore(record, frozenset((shard,)))
        match record:
            case SpooledFired() | SpooledEmitted():
                self._emitting.restore(shard, record)
            case TimerDue():
                self._timers.restore(shard, record)
            case WatermarkReached():
                self._watermarks.restore(shard, record)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        self._contents.drop(shards)
        self._timers.drop(shards)
        self._watermarks.drop(shards)


class Aggregator(msgspec.Struct):
    """The run of a window, if there is one."""

    where: str
    """Begins messages."""
    spark: SparkRuns
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
