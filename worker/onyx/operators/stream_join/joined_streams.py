"""What a join of two streams keeps on one peer, and what it makes of it.

The rows of each side are stored by key and time. A row that comes meets the rows of the other side
that are there. When the watermark rises, rows are emitted that have met none and can meet none any
more, and those go that nobody needs. Both follow from the times of rows and from the watermark of
their key group, so the state log has rows and watermarks, and nothing is ever said of a row again.

Everything is done for a batch at once, whatever the format of its segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onyx.flow.arrays import Indices, Mask
from onyx.flow.batch import Segments
from onyx.flow.groups.keys import SHARDS
from onyx.keystate.extents import Extent, Number
from onyx.keystate.groups import Shards
from onyx.keystate.pages import Pages
from onyx.keystate.records import JoinRows, JoinSchema, Record, Records, WatermarkReached
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.operators.stream_join.asked import extents_of
from onyx.operators.stream_join.chronicle import Chronicle
from onyx.operators.stream_join.definition import StreamJoin
from onyx.operators.stream_join.keyed_rows import KeyedRows, same_keys
from onyx.operators.stream_join.looked import Rows
from onyx.operators.stream_join.looking import look_at
from onyx.operators.stream_join.part import NONE, Keep, in_order
from onyx.operators.stream_join.restoring import Restoring
from onyx.operators.stream_join.results import Chosen, Made, Results, gathered
from onyx.operators.stream_join.spans import END, LEFT, NO_WATERMARK, RIGHT, US_A_MS, Side, Times
from onyx.operators.stream_join.stored import StoredSide
from onyx.operators.stream_join.stored_form import Stored, segments_of
from onyx.program.operator import Operator

SIDES: tuple[Side, Side] = (LEFT, RIGHT)


class Taken(NamedTuple):
    """What became of segments of a side."""

    made: list[Made]
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
        self._results = Results(join)
        self._chronicle = Chronicle(self._watermarks)
        self._restoring = Restoring(self._store_restored, self._results.saw)

    # --- segments ---------------------------------------------------------------------------------

    def add(
        self, side: Side, segments: Segments, times: Times, rows: Sequence[Rows], shards: Indices
    ) -> Taken:
        """Take segments of a side.

        Args:
            times: of the segments.
            rows: the segments, by the kinds of their keys.
            shards: of the segments.
        """
        late = times < self._spans.late_before(self._watermarks[shards])
        every = Stored.of(segments)
        self._results.saw(side, every.rows.schema)
        made: list[Made] = []
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
        return Taken(made, np.flatnonzero(late).tolist())

    def saw_side(self, side: Side, schema: pa.Schema) -> None:
        """Segments of a side have these columns, wherever they have gone."""
        self._results.saw(side, schema)

    def _take(self, side: Side, rows: KeyedRows, stored: Stored, of: Indices) -> Iterator[Made]:
        """Rows meet those that are there, and stay.

        Args:
            of: the index of each row among the segments that have come.
        """
        if not len(rows):
            return
        rows = in_order(rows)  # neighbours in a large array are found faster
        if not self.its.latest:
            reach = self._spans.reach(side, rows.times)
            for part in self._stored[1 - side].parts:
                for mine, others in part.pairs(rows, reach):
                    pair = Chosen(stored, rows.where[mine]), _chosen(part.rows, others)
                    made = self._results.of_pairs(*(pair if side == LEFT else pair[::-1]))
                    yield made._replace(of=of[rows.where[mine]])
        self._stored[side].add(rows)
        self._chronicle.added(side, rows)

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

    def _alone(self, side: Side, rows: KeyedRows) -> Iterator[Made]:
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

    def _with_latest(self, rows: KeyedRows) -> Iterator[Made]:
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

    # --- what is recorded and restored ------------------------------------------------------------

    def take_changes(self) -> Records:
        """What has changed since the last call, by shard."""
        return self._chronicle.take_changes(self._shards.known)

    def freeze(self, shards: Collection[int]) -> Callable[[int], list[Record]]:
        """What gives the whole state of each of these shards as it is now."""
        parts = [(side, part.rows) for side in SIDES for part in self._stored[side].parts]
        return self._chronicle.freeze(parts, {side: self._gone(side) for side in SIDES})

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


def _chosen(rows: KeyedRows, chosen: Indices) -> Chosen:
    return Chosen(Stored(rows.segments), rows.where[chosen])


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
