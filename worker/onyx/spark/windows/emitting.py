"""Results of a window by Spark become pages of firings, and the log hears how far.

A result is complete before anything of it is emitted, and never changes. So a position in it says
what was emitted: whoever recovers a shard goes on there, with the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import field
from msgspec.structs import replace

from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards, group_value
from onyx.keystate.records import EventType, Record, Records, SpooledEmitted, SpooledFired, append
from onyx.spark.windows.holdings import Holdings
from onyx.spark.windows.plan import EXTENT, FIRES, LOWER, SHARD, UPPER
from onyx.spark.windows.results import RowsOfShards, groups, groups_of, result_rows, states
from onyx.spark.windows.spool import Spool
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.compiled import CompiledWindow
from onyx.windows.firing import AnyFiring, Firing, FiringPages, FiringRows, earliest
from onyx.windows.watermarks import ShardWatermarks

THROUGH = -1
"""In place of a file: all is emitted."""
PAGE_OF_ROWS = 5
"""A page of rows has so many times `page_max`: rows of all shards are in it, and what costs is not
a row, but that a shard has some."""


class Emitting:
    """The outcomes of one window on one peer that are not wholly emitted."""

    def __init__(
        self,
        compiled: CompiledWindow,
        grouped: bool,
        reader: FiringReader,
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
        self._restored = OutcomeRecords()
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

    def left(self) -> FiringPages:
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
    ) -> FiringPages:
        """A new result of this peer, page by page."""
        if event_type == "job-completed":
            self._done.update((trigger, shard) for shard in shards)
        outcome = Outcome(name, trigger, event_type, watermark, shards, own=True)
        self._outcomes.append(outcome)
        yield from self._pages(outcome)

    def unfinished(self, trigger: str, shards: Collection[int]) -> frozenset[int]:
        """The shards that a trigger has not made fire for the last time."""
        return frozenset(each for each in shards if (trigger, each) not in self._done)

    def _pages(self, outcome: Outcome) -> FiringPages:
        """What is left of a result, page by page; the log has the position behind each."""
        declared, watermark = self._triggers[outcome.trigger], outcome.watermark
        aggregation = self._compiled.aggregation

        def firing(key: Any, shard: int, bounds: tuple[Number, Number], state: Any) -> Firing:
            seen = self._watermarks.known(shard) if watermark is None else watermark
            return Firing(
                self._compiled.window, declared, outcome.event_type, shard, self._grouped,
                group_value(key), *bounds, aggregation.view(state), None, seen,
            )  # fmt: skip

        def together(made: RowsOfShards) -> FiringRows:
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


class FiringReader(msgspec.Struct, frozen=True):
    """Makes firings of the rows of results."""

    aggregation: Aggregation
    bounds: Callable[[int], tuple[Number, Number]]
    """The bounds of an extent by its number."""
    folder: Spool
    page_max: int
    shards: Shards
    """Finds the shards of groups where a result does not say them."""

    def pages(
        self,
        outcome: Outcome,
        firing: Callable[[Any, int, tuple[Number, Number], Any], Firing],
        together: Callable[[RowsOfShards], FiringRows] | None,
    ) -> Iterator[list[AnyFiring]]:
        """What is left of an outcome.

        Args:
            firing: makes one of a group, its shard, bounds and a state.
            together: makes one of rows, where the trigger takes them.
        """
        rows_max = self.page_max * (1 if together is None else PAGE_OF_ROWS)
        for rows in outcome.batches(self.folder, rows_max):
            batch = _that_fire(self._sharded(rows), outcome.shards)
            if together is not None and batch.num_rows:
                found = result_rows(self.aggregation, self.bounds, batch)
                if found is not None:
                    yield [together(found)]
                    continue
            made = map(
                firing,
                groups(batch),
                batch.column(SHARD).to_pylist(),
                self._bounds(batch),
                states(self.aggregation, batch),
            )
            yield list(made)

    def _sharded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their shards (`Plan.sharded`)."""
        if SHARD in batch.schema.names:
            return batch
        column = groups_of(batch)
        if column is None or column.null_count:
            found = pa.array(map(self.shards.__getitem__, groups(batch)), pa.int16())
        else:
            found = pa.array(self.shards.of_column(column))
        return batch.append_column(SHARD, found)

    def _bounds(self, batch: pa.RecordBatch) -> Iterator[tuple[Number, Number]]:
        if LOWER not in batch.schema.names:
            return map(self.bounds, batch.column(EXTENT).to_pylist())
        lowers, uppers = (batch.column(name).to_pylist() for name in (LOWER, UPPER))
        return zip(lowers, uppers, strict=True)


def _that_fire(batch: pa.RecordBatch, shards: Collection[int]) -> pa.RecordBatch:
    """Rows that fire, and are of these shards: others are another peer's."""
    mine = pc.is_in(batch.column(SHARD), pa.array(sorted(shards), batch.column(SHARD).type))
    if FIRES in batch.schema.names:
        mine = pc.and_(mine, pc.fill_null(batch.column(FIRES), False))
    return batch.filter(mine)


class Outcome(msgspec.Struct, eq=False):
    """What one trigger made fire, for shards of which as much is emitted."""

    name: str
    trigger: str
    event_type: EventType
    watermark: Number | None
    shards: frozenset[int]
    own: bool
    """Whether this peer has made it in this allocation version."""
    file: int = 0
    row: int = 0

    def batches(self, folder: Spool, rows_max: int) -> Iterator[pa.RecordBatch]:
        """What is left, in bounded batches; the position is behind each when it is given."""
        files = folder.files(self.name)
        while self.file < len(files):
            skipped = self.row
            with folder.opened(files[self.file]) as file:
                end = 0
                for batch in file.iter_batches(rows_max):
                    first, end = end, end + batch.num_rows
                    if end <= skipped:
                        continue
                    self.row = end
                    yield batch.slice(max(0, skipped - first))
            self.file, self.row = self.file + 1, 0

    def fired(self, window: str) -> SpooledFired:
        """The record of it, without the extents that lost their parts then."""
        return SpooledFired(window, self.trigger, self.name, self.event_type, [], self.watermark)

    def emitted(self, window: str) -> SpooledEmitted:
        """The record of its position."""
        return SpooledEmitted(window, self.trigger, self.name, self.file, self.row)


class OutcomeRecords(msgspec.Struct):
    """Outcomes as records tell them, shard by shard."""

    firsts: dict[str, Outcome] = field(default_factory=dict)
    """By name, without shards."""
    positions: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """By name and shard; those that are through are left out."""

    def fired(self, shard: int, record: SpooledFired) -> None:
        """A firing of a shard."""
        self.firsts[record.name] = Outcome(
            record.name,
            record.trigger,
            record.event_type,
            record.watermark,
            frozenset(),
            own=False,
        )
        self.positions.setdefault(record.name, {})[shard] = (0, 0)

    def emitted(self, shard: int, record: SpooledEmitted) -> None:
        """How far it is."""
        if record.file == THROUGH:
            self.positions.get(record.name, {}).pop(shard, None)
        elif record.name in self.positions:
            self.positions[record.name][shard] = (record.file, record.row)

    @property
    def pending(self) -> bool:
        """Whether some are not through."""
        return any(self.positions.values())

    def take(self) -> list[Outcome]:
        """The outcomes that are not through, one for each position."""
        found = []
        for name, positions in self.positions.items():
            for file, row in sorted(set(positions.values())):
                mine = frozenset(shard for shard, at in positions.items() if at == (file, row))
                found.append(replace(self.firsts[name], shards=mine, file=file, row=row))
        self.firsts, self.positions = {}, {}
        return found
