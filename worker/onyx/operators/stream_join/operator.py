"""A join of two streams: what it keeps on one peer, what it makes of it, and what questions see.

A batch of one side is looked at before it is routed, and taken behind that. The rows of each side
are stored by key and time. A row that comes meets the rows of the other side that are there. When
the watermark rises, rows are emitted that have met none and can meet none any more, and those go
that nobody needs. Both follow from the times of rows and from the watermark of their key group, so
the state log has rows and watermarks, and nothing is ever said of a row again. Everything is done
for a batch at once, whatever the format of its segments.

For questions the rows of one key and time are one extent: they have no names that stay, so no page
could begin between them. All rows that may be meant are decoded, some at a time, to know their
keys; if one key is asked for, only rows with its hash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from onyx.base.runs import Numbers, taken
from onyx.errors import UserError
from onyx.flow.arrays import Indices, Mask
from onyx.flow.batch import Segment, Segments, as_dicts
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.flow.groups.keys import SHARDS, combined_hashes
from onyx.joins.keys import apart
from onyx.keystate.coded import chosen, keyed, shards_in
from onyx.keystate.extents import ALL, Extent, Number
from onyx.keystate.groups import Shards, group_value, hashable_key
from onyx.keystate.pages import Pages
from onyx.keystate.records import JoinRows, JoinSchema, Record, Records, WatermarkReached
from onyx.keystate.selection import EVERYTHING, FirstPlaces, Selection, place
from onyx.operators.context import OperatorContext
from onyx.operators.stream_join.changelog import ChangelogReader, ChangelogWriter
from onyx.operators.stream_join.definition import StreamJoin
from onyx.operators.stream_join.keyed_rows import KeyedRows, StoredSegments, same_keys, segments_of
from onyx.operators.stream_join.looking import AlikeRows, PreparedSide, look_at
from onyx.operators.stream_join.results import (
    JoinResult,
    JoinResults,
    RowChoice,
    by_shard,
    gathered,
)
from onyx.operators.stream_join.spans import END, LEFT, NO_WATERMARK, RIGHT, US_A_MS, Side, Times
from onyx.operators.stream_join.stored import NONE, Keep, StoredSide, in_order
from onyx.program.batch_work import BatchWork, look_at_leaves
from onyx.program.operator import Keeper, Operator, carry_out, emit_late
from onyx.program.program import Program
from onyx.reports.measures import StateMeasures
from onyx.telemetry.catalog import JOIN_EXPIRED, LATE_SEGMENTS

SIDES: tuple[Side, Side] = (LEFT, RIGHT)


ROWS_AT_ONCE = 16_384
StoredRows = tuple[Side, KeyedRows, Callable[[KeyedRows], Mask]]
"""Rows of a side, with what says which of them nobody needs."""


class JoinOutcome(NamedTuple):
    """What became of segments of a side."""

    made: list[JoinResult]
    late: list[int]
    """The indices of those that came late."""


class _Lone(NamedTuple):
    """Rows of a side that meet no row that is still to come."""

    side: Side
    rows: KeyedRows


class JoinedStreams(Operator):
    """The rows of both sides: all of an operator but what it does with a batch."""

    def __init__(
        self,
        join: StreamJoin,
        shards: Shards,
        page_max: int,
        keep: Keep | None = None,
        memory_rows_max: int = 0,
    ) -> None:
        """
        Args:
            shards: gives the shard of a group, and knows those of the peer.
            page_max: rows that are emitted at once when the watermark has passed them.
            keep: moves rows out of memory; None: all stay.
            memory_rows_max: rows that stay there; with `keep`.
        """
        self.its, self._spans = join, join.spans
        self._shards = shards
        self._page_max = page_max
        self._watermarks: Times = np.full(SHARDS, NO_WATERMARK)
        """How far event time has come, by shard."""
        self._stored = tuple(StoredSide(self._gone(side), keep, memory_rows_max) for side in SIDES)
        self._results = JoinResults(join)
        self._changelog = ChangelogWriter(self._watermarks)
        self._restoring = ChangelogReader(self._store_restored, self._results.saw)

    # --- segments ---------------------------------------------------------------------------------

    def add(
        self,
        side: Side,
        segments: Segments,
        times: Times,
        rows: Sequence[AlikeRows],
        shards: Indices,
    ) -> JoinOutcome:
        """Take segments of a side.

        Args:
            times: of the segments.
            rows: the segments, by the kinds of their keys.
            shards: of the segments.
        """
        assert len(times) == len(segments) == len(shards), "each segment has a time and a shard"
        late = times < self._spans.late_before(self._watermarks[shards])
        every = StoredSegments.of(segments)
        self._results.saw(side, every.rows.schema)
        made: list[JoinResult] = []
        for each in rows:
            there = ~late[each.where] & _valid(each.keys)
            keys, where = each.keys, each.where
            if not there.all():
                keys, where = tuple(key.filter(pa.array(there)) for key in keys), where[there]
            mine = every.take(where)
            its = KeyedRows.of(keys, times[where], shards[where], mine.rows)
            made += self._take(side, its, mine, where)
            if self.its.sides[side].outer:
                without = each.where[~there & ~late[each.where]]
                lone = self._results.of_lone(side, every.take(without).rows)
                made.append(lone._replace(of=without))
        return JoinOutcome(made, np.flatnonzero(late).tolist())

    def saw_side(self, side: Side, schema: pa.Schema) -> None:
        """Segments of a side have these columns, wherever they have gone."""
        self._results.saw(side, schema)

    def _take(
        self, side: Side, rows: KeyedRows, stored: StoredSegments, of: Indices
    ) -> Iterator[JoinResult]:
        """Rows meet those that are there, and stay.

        Args:
            of: the index of each row among the segments that have come.
        """
        if not len(rows):
            return
        assert len(rows) == len(of), "each row is of a segment that has come"
        rows = in_order(rows)  # neighbours in a large array are found faster
        if not self.its.latest:
            reach = self._spans.reach(side, rows.times)
            for part in self._stored[1 - side].parts:
                for mine, others in part.pairs(rows, reach):
                    pair = RowChoice(stored, rows.where[mine]), _chosen(part.rows, others)
                    made = self._results.of_pairs(*(pair if side == LEFT else pair[::-1]))
                    yield made._replace(of=of[rows.where[mine]])
        self._stored[side].add(rows)
        self._changelog.added(side, rows)

    # --- event time -------------------------------------------------------------------------------

    def advance(self, watermark: Number) -> Pages:
        """Rows that it has passed are emitted or go."""
        reached = min(max(watermark * US_A_MS, NO_WATERMARK), END - 1)
        return self._rise(int(reached), self._shards.known)

    def passed_on(self, watermark: int) -> int:
        """Behind the oldest time of what is still to be made."""
        return self._spans.made_from(watermark * US_A_MS) // US_A_MS

    def complete(self, shards: Collection[int], now_ms: int) -> Pages:
        """Nothing comes any more for these shards."""
        return self._rise(END, shards)

    def _rise(self, watermark: int, shards: Collection[int]) -> Pages:
        assert NO_WATERMARK <= watermark <= END, "a time of the join"
        mine = np.array(sorted(shards), np.intp)
        rising = mine[self._watermarks[mine] < watermark]
        if not len(rising):
            return
        lone = self._lone(rising, watermark)
        for page in self._pages(lone, rising):
            made = [
                each
                for side, rows in lone
                for each in self._alone(side, rows.take(np.flatnonzero(page[rows.shards])))
            ]
            assert (self._watermarks[page] < watermark).all(), "event time only rises"
            self._watermarks[page] = watermark
            fired = gathered(int(page.argmax()), made)
            if fired:
                yield fired
        reached = self._watermarks[sorted(self._shards.known)].min()
        for side in SIDES:
            self._stored[side].drop(int(self._spans.gone_before(side, reached)))

    def _lone(self, rising: Indices, watermark: int) -> list[_Lone]:
        """Rows of these shards that meet none that comes, for the first time."""
        found: list[_Lone] = []
        before, chosen = self._watermarks, np.zeros(SHARDS, np.bool_)
        chosen[rising] = True
        for side in SIDES:
            if not self.its.sides[side].outer:
                continue
            first, end = self._spans.alone_before(
                side, np.array([before[rising].min(), watermark], np.int64)
            ).tolist()
            for rows in self._stored[side].between(first, end):
                known = self._spans.alone_before(side, before[rows.shards])
                new = np.flatnonzero(chosen[rows.shards] & (rows.times >= known))
                if len(new):
                    found.append(_Lone(side, rows.take(new)))
        return found

    def _pages(self, lone: Sequence[_Lone], rising: Indices) -> Iterator[Mask]:
        """The rising shards, in runs that have about a page of rows, at least one shard each."""
        counts = np.zeros(SHARDS, np.intp)
        for _, rows in lone:
            counts += np.bincount(rows.shards, minlength=SHARDS)
        numbers = np.cumsum(counts[rising]) // self._page_max
        for number in np.unique(numbers):
            page = np.zeros(SHARDS, np.bool_)
            page[rising[numbers == number]] = True
            yield page

    def _alone(self, side: Side, rows: KeyedRows) -> Iterator[JoinResult]:
        """What is made of rows of a side when no more partners of theirs come."""
        if not len(rows):
            return
        if self.its.latest:
            yield from self._with_latest(rows)
            return
        reach, met = self._spans.reach(side, rows.times), np.zeros(len(rows), np.bool_)
        for part in self._stored[1 - side].parts:
            met |= part.meets(rows, reach)
        yield self._results.of_lone(side, rows.chosen(np.flatnonzero(~met)))

    def _with_latest(self, rows: KeyedRows) -> Iterator[JoinResult]:
        """Left rows, each with the latest right one."""
        reach, parts = self._spans.reach(LEFT, rows.times), self._stored[RIGHT].parts
        best = np.full(len(rows), NO_WATERMARK)
        chosen, where = np.full(len(rows), NONE), np.full(len(rows), NONE)
        for number, part in enumerate(parts):
            found = part.latest(rows, reach)
            there = np.flatnonzero(found != NONE)
            times = part.rows.times[found[there]]
            later = times >= best[there]
            there, times = there[later], times[later]
            best[there], chosen[there], where[there] = times, number, found[there]
        for number, part in enumerate(parts):
            mine = np.flatnonzero(chosen == number)
            if len(mine):
                others = _chosen(part.rows, where[mine])
                yield self._results.of_pairs(_chosen(rows, mine), others)
        yield self._results.of_lone(LEFT, rows.chosen(np.flatnonzero(chosen == NONE)))

    def _gone(self, side: Side) -> Callable[[KeyedRows], Mask]:
        """Which rows of a side nobody needs."""

        def gone(rows: KeyedRows) -> Mask:
            watermarks = self._watermarks[rows.shards]
            found: Mask = rows.times < self._spans.gone_before(side, watermarks)
            if self.its.latest and side == RIGHT and len(rows) > 1:
                found[:-1] |= _replaced(rows, watermarks)
            return found

        return gone

    def measures(self) -> StateMeasures:
        """The rows of each side, those that nobody needs included until they go."""
        left, right = (
            StateMeasures(
                sides={side.task: len(stored)},
                sides_bytes={side.task: stored.size_bytes},
                spilled=stored.spilled,
            )
            for side, stored in zip(self.its.sides, self._stored, strict=True)
        )
        return left + right

    # --- what is recorded and restored ------------------------------------------------------------

    def take_changes(self) -> Records:
        """What has changed since the last call, by shard."""
        return self._changelog.take_changes(self._shards.known)

    def freeze(self, shards: Collection[int]) -> Callable[[int], list[Record]]:
        """What gives the whole state of each of these shards as it is now."""
        parts = [(side, part.rows) for side in SIDES for part in self._stored[side].parts]
        return self._changelog.freeze(parts, {side: self._gone(side) for side in SIDES})

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records to a shard."""
        self._shards.known[shard] = None
        for record in records:
            if isinstance(record, JoinSchema | JoinRows):
                self._restoring.apply(shard, record)
            elif isinstance(record, WatermarkReached) and record.watermark == END:
                self._forget(shard)
            elif isinstance(record, WatermarkReached):
                self._watermarks[shard] = max(self._watermarks[shard], int(record.watermark))

    def _forget(self, shard: int) -> None:
        """All rows of a shard were emitted at the end of the job, or of an older version of it,
        behind which event time begins anew."""
        self._watermarks[shard] = NO_WATERMARK
        self._restoring.forget(shard)
        for side in SIDES:
            self._stored[side].forget(shard)

    def _store_restored(self, side: Side, rows: pa.RecordBatch, shards: Indices) -> None:
        looked = look_at(self.its, self.its.sides[side], segments_of(rows))
        for each in looked.rows:
            taken = rows.take(pa.array(each.where))
            mine = KeyedRows.of(each.keys, looked.times[each.where], shards[each.where], taken)
            self._stored[side].add(in_order(mine))

    def restored(self) -> None:
        """All shards are restored."""
        self._restoring.finish()

    def query(
        self, name: str, asked: Selection = EVERYTHING, extents_max: int | None = None
    ) -> list[Extent]:
        """The rows that are of use, by key and time."""
        stored = [
            (side, part.rows, self._gone(side))
            for side in SIDES
            for part in self._stored[side].parts
        ]
        return extents_of(self.its, stored, asked, extents_max)


def _chosen(rows: KeyedRows, chosen: Indices) -> RowChoice:
    return RowChoice(StoredSegments(rows.segments), rows.where[chosen])


def _valid(keys: Sequence[pa.Array]) -> Mask:
    """Which rows have all parts of their key."""
    found: Mask = np.logical_and.reduce(
        [key.is_valid().to_numpy(zero_copy_only=False) for key in keys]
    )
    return found


def _replaced(rows: KeyedRows, watermarks: Times) -> Mask:
    """Which rows but the last are followed by a later one of their key that the watermark has
    passed."""
    here = np.arange(len(rows) - 1)
    found: Mask = rows.hashes[:-1] == rows.hashes[1:]
    found &= rows.times[1:] < watermarks[1:]
    same = same_keys(rows, here, rows, here + 1)
    return found if same is None else found & same


class StreamJoinOperator(JoinedStreams):
    """A join of two streams."""

    def begin(self, program: Program, keeper: Keeper) -> None:
        """The state is restored. What went meanwhile was counted by whoever had it before."""
        super().begin(program, keeper)
        self._counted = self._dropped

    def look(self, work: BatchWork) -> None:
        """Look at the leaves of a batch; those that cannot be looked at are refused."""
        leaves = work.leaves
        if leaves is not None:
            side = self.its.sides[self._side(work)]
            work.seen = look_at_leaves(leaves, leaves.segments, partial(look_at, self.its, side))

    def change(self, work: BatchWork) -> None:
        """Segments that are fresh meet those of the other side."""
        with self.failures():
            self._join(work)
        self._count_dropped()

    def saw(self, parent: str, schema: pa.Schema) -> None:
        """Segments of a side have these columns, wherever they have gone."""
        self.saw_side(self._side_of(parent), schema)

    def _rise(self, watermark: int, shards: Collection[int]) -> Pages:
        yield from super()._rise(watermark, shards)
        self._count_dropped()

    @property
    def _dropped(self) -> int:
        return sum(each.dropped for each in self._stored)

    def _count_dropped(self) -> None:
        before, self._counted = self._counted, self._dropped
        if self._counted > before:
            self.program.metrics.add(JOIN_EXPIRED, self._counted - before)

    def _join(self, work: BatchWork) -> None:
        join, batch, leaves, routed = self.its, work.batch, work.leaves, work.routed
        if batch is None or leaves is None:
            return
        assert routed is not None, "the phase before"
        side, segments = self._side(work), leaves.segments
        looked: PreparedSide | None = work.seen
        groups = chosen(work.groups, leaves.parents)
        origin = np.arange(len(leaves)) if leaves.parents is None else leaves.parents
        fresh = self.keeper.fresh(batch, routed.withdrawn)
        if fresh is not None:
            where = np.flatnonzero(fresh if leaves.parents is None else fresh[leaves.parents])
            segments, groups, looked = chosen(segments, where), chosen(groups, where), None
            origin = origin[where]
        if not len(segments):
            return
        looked = look_at(join, join.sides[side], segments) if looked is None else looked
        shards = shards_in(self.keeper.shard_of, keyed(segments, groups))
        if looked.unique is not None:
            values = [[side, value] for value in looked.unique]
            new = self.keeper.first_seen(shards.tolist(), values)
            where = np.flatnonzero(new)
            segments, shards, origin = chosen(segments, where), shards[where], origin[where]
            looked = look_at(join, join.sides[side], segments)
        if len(segments):
            roots = None if batch.roots is None else taken(batch.roots, origin)
            self._add(side, segments, looked, shards, roots)

    def _add(
        self,
        side: Side,
        segments: Segments,
        looked: PreparedSide,
        shards: Indices,
        roots: Numbers | None,
    ) -> None:
        keeper = self.keeper
        added = self.add(side, segments, looked.times, looked.rows, shards)
        keeper.changed(len(segments))
        if self.its.tells_apart and roots is not None:
            for shard, made, of in by_shard(added.made, shards):
                if shard not in keeper.closed:
                    keeper.emit_for(shard, made, taken(roots, of))
        else:
            carry_out(keeper, gathered(int(shards[0]), added.made))
        if added.late:
            self.program.metrics.add(LATE_SEGMENTS, len(added.late))
            where = np.array(added.late, np.intp)
            late = as_dicts(chosen(segments, where))
            emit_late(keeper, self.its.late_to, late, shards[where].tolist())

    def _side(self, work: BatchWork) -> Side:
        assert work.batch is not None, "asked before"
        assert work.batch.upstream is not None, "a join knows who has sent a batch"
        return self._side_of(work.batch.upstream)

    def _side_of(self, parent: str) -> Side:
        return RIGHT if self.its.by_task[parent] else LEFT


def join_operator(its: StreamJoin, context: OperatorContext) -> StreamJoinOperator:
    """The join, with no rows in it."""
    keep = None if context.keep_rows is None else context.keep_rows()
    memory_rows_max = context.memory_rows_max
    return StreamJoinOperator(its, context.shards, context.page_max, keep, memory_rows_max)


class _Row(NamedTuple):
    group: Any
    time: Number
    """In milliseconds."""
    side: Side
    segment: Segment


def extents_of(
    join: StreamJoin, stored: Sequence[StoredRows], asked: Selection, extents_max: int | None
) -> list[Extent]:
    """An extent for each key and time that is asked for, the first in order."""
    firsts = FirstPlaces[_Row](extents_max)
    behind = None if asked.after is None else asked.after.order
    for side, rows, gone in stored:
        for row in _meant(join, side, rows, ~gone(rows), asked):
            order = place(row.group, row.time, row.time, ()).order
            if behind is None or order > behind:
                firsts.add(order, row)
    return [_extent(rows) for rows in firsts.in_order()]


def _extent(rows: Sequence[_Row]) -> Extent:
    group, time, _, _ = rows[0]
    left, right = ([each.segment for each in rows if each.side == side] for side in (LEFT, RIGHT))
    return Extent(group, time, time, {"left": left, "right": right})


def _meant(
    join: StreamJoin, side: Side, rows: KeyedRows, there: Mask, asked: Selection
) -> Iterator[_Row]:
    """The rows of a part that are asked for, of those that are there."""
    if asked.time_from is not None:
        there &= rows.times >= _microseconds(asked.time_from)
    if asked.time_to is not None:
        there &= rows.times < _microseconds(asked.time_to)
    if asked.key is not ALL:
        there &= _may_have(rows, _parts(join, asked.key))
    wanted = ALL if asked.key is ALL else hashable_key(asked.key)
    chosen = np.flatnonzero(there)
    for start in range(0, len(chosen), ROWS_AT_ONCE):
        some = chosen[start : start + ROWS_AT_ONCE]
        segments = as_dicts(segments_of(rows.chosen(some)))
        for time, segment in zip(rows.times[some].tolist(), segments, strict=True):
            key = hashable_key(_group(join, side, segment))
            group = group_value(key)
            if asked.has_group(group) if wanted is ALL else key == wanted:
                yield _Row(group, _milliseconds(time), side, segment)


def _microseconds(bound: Number) -> int:
    """The first time that is not before a bound."""
    return math.ceil(min(max(bound * US_A_MS, NO_WATERMARK), END))


def _milliseconds(time: int) -> Number:
    return time / US_A_MS if time % US_A_MS else time // US_A_MS


def _group(join: StreamJoin, side: Side, segment: Segment) -> Any:
    """The key of a segment: of several parts an object with the names of the left side."""
    names, values = join.sides[LEFT].keys, [segment[each] for each in join.sides[side].keys]
    return values[0] if len(names) == 1 else dict(zip(names, values, strict=True))


def _parts(join: StreamJoin, group: Any) -> list[Any]:
    """The values of the key of a group."""
    names = join.sides[LEFT].keys
    return [group] if len(names) == 1 else [group[each] for each in names]


def _may_have(rows: KeyedRows, parts: Sequence[Any]) -> Mask:
    """Which rows have the hash of a key."""
    try:
        keys = [apart(to_array([each])) for each in parts]
    except (UserError, *MISMATCH):
        return np.zeros(len(rows), np.bool_)  # no row has such a key
    if any(each.null_count for each in keys):
        return np.zeros(len(rows), np.bool_)
    found: Mask = rows.hashes == combined_hashes(keys)[0]
    return found
