"""Results of a window by Spark become pages of firings, and the log hears how far."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from onyx.keystate.extents import Number
from onyx.keystate.groups import group_value
from onyx.keystate.records import EventType, Record, Records, SpooledEmitted, SpooledFired, append
from onyx.spark.windows.holdings import Holdings
from onyx.spark.windows.outcomes import THROUGH, Outcome, Restored
from onyx.spark.windows.result_reader import ResultReader
from onyx.spark.windows.result_rows import Rows
from onyx.windows.compiled import CompiledWindow
from onyx.windows.firing import Firing, FiringRows, Pages, earliest
from onyx.windows.watermarks import ShardWatermarks


class Emitting:
    """The outcomes of one window on one peer that are not wholly emitted."""

    def __init__(
        self,
        compiled: CompiledWindow,
        grouped: bool,
        reader: ResultReader,
        holdings: Holdings,
        watermarks: ShardWatermarks,
    ) -> None:
        self._compiled = compiled
        self._id = compiled.window.id
        self._grouped = grouped
        self._reader = reader
        self._holdings = holdings
        self._watermarks = watermarks
        self._triggers = {each.name: each.declared for each in compiled.triggers}
        self._in_rows = {each.name for each in compiled.triggers if each.in_rows}
        self._outcomes: list[Outcome] = []
        self._restored = Restored()
        self._done: set[tuple[str, int]] = set()
        """Triggers and shards that have fired for the last time."""
        self._changes: list[tuple[frozenset[int], Record]] = []

    @property
    def pending(self) -> bool:
        """Whether a result is left that was being emitted when this peer took over."""
        return self._restored.pending

    def adopt(self) -> set[tuple[str, EventType]]:
        """Make results that were being emitted when this peer took over its own to emit; triggers
        and events of which some are left."""
        self._outcomes += self._restored.take()
        return {(each.trigger, each.event_type) for each in self._outcomes}

    def left(self) -> Pages:
        """What is left of all results."""
        self.adopt()
        for outcome in list(self._outcomes):
            yield from self._pages(outcome)

    def emit(
        self,
        name: str,
        trigger: str,
        event_type: EventType,
        watermark: Number | None,
        shards: frozenset[int],
    ) -> Pages:
        """A new result of this peer, page by page."""
        if event_type == "job-completed":
            self._done.update((trigger, shard) for shard in shards)
        outcome = Outcome(name, trigger, event_type, watermark, shards, own=True)
        self._outcomes.append(outcome)
        yield from self._pages(outcome)

    def unfinished(self, trigger: str, shards: Collection[int]) -> frozenset[int]:
        """The shards that a trigger has not made fire for the last time."""
        return frozenset(each for each in shards if (trigger, each) not in self._done)

    def _pages(self, outcome: Outcome) -> Pages:
        """What is left of a result, page by page; the log has the position behind each."""
        declared, watermark = self._triggers[outcome.trigger], outcome.watermark
        aggregation = self._compiled.aggregation

        def firing(key: Any, shard: int, bounds: tuple[Number, Number], state: Any) -> Firing:
            seen = self._watermarks.known(shard) if watermark is None else watermark
            return Firing(
                self._compiled.window, declared, outcome.event_type, shard, self._grouped,
                group_value(key), *bounds, aggregation.view(state), None, seen,
            )  # fmt: skip

        def together(made: Rows) -> FiringRows:
            rows, shards = made
            seen = earliest(map(self._watermarks.known, shards)) if watermark is None else watermark
            return FiringRows(
                self._compiled.window, declared, outcome.event_type, self._grouped, rows, shards,
                seen,
            )  # fmt: skip

        in_rows = outcome.trigger in self._in_rows
        yield from self._reader.pages(outcome, firing, together if in_rows else None)
        outcome.file, outcome.row = THROUGH, 0
        self._outcomes.remove(outcome)
        self._changes.append((outcome.shards, outcome.emitted(self._id)))
        if outcome.own:
            self._holdings.emitted(outcome.name)

    def take_changes(self) -> list[tuple[frozenset[int], Record]]:
        """How far results are emitted. Behind the records of what fired: a position is of a result
        that the log knows."""
        positions = [(each.shards, each.emitted(self._id)) for each in self._outcomes]
        changes, self._changes = [*self._changes, *positions], []
        return changes

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the results that some shards have not emitted."""
        self.adopt()
        for name, shard in sorted(self._done):
            if shard in shards:
                done = SpooledFired(self._id, name, "", "job-completed", [], None)
                append(records, shard, done)
                append(records, shard, SpooledEmitted(self._id, name, "", THROUGH, 0))
        for outcome in self._outcomes:
            for shard in outcome.shards.intersection(shards):
                append(records, shard, outcome.fired(self._id))
                append(records, shard, outcome.emitted(self._id))

    def restore(self, shard: int, record: SpooledFired | SpooledEmitted) -> None:
        """Apply a record."""
        if isinstance(record, SpooledFired):
            self._restored.fired(shard, record)
            if record.event_type == "job-completed":
                self._done.add((record.trigger, shard))
        else:
            self._restored.emitted(shard, record)
