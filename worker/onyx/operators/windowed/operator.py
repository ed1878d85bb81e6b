"""The windows of a task: segments that are fresh change them, and what fires is emitted.

`windows.task_windows` has the state. What is here belongs to a task: which segments count, what the
functions of triggers make of what fires, and what becomes of segments that come late.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from onyx.flow.batch import Segments, as_dicts, copies_of
from onyx.flow.groups.keys import shard_of
from onyx.flow.leaves import Leaves
from onyx.keystate.coded import Keyed, chosen, keyed, shards_in
from onyx.keystate.extents import Extent, Number
from onyx.keystate.pages import PENDING, Page, Pages
from onyx.keystate.records import Record, Records, StateFiles, StatesRecord
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.operators.context import OperatorContext
from onyx.operators.windowed.definition import Windowed
from onyx.operators.windowed.trigger_calls import TriggerCalls, emitted
from onyx.program.batch_work import BatchWork, look_at_leaves
from onyx.program.operator import Keeper, Operator, carry_out, emit_late
from onyx.program.program import Program
from onyx.reports.measures import StateMeasures
from onyx.telemetry.catalog import LATE_SEGMENTS
from onyx.windows import firing
from onyx.windows.firing import AnyFiring
from onyx.windows.prepared import Prepared
from onyx.windows.prepared import prepare as prepare_batch
from onyx.windows.task_windows import TaskWindows


class WindowedOperator(Operator):
    """The windows of one task."""

    def __init__(self, its: Windowed, windows: TaskWindows) -> None:
        """`windows`: with nothing in them yet."""
        self._its = its
        self.windows = windows

    def begin(self, program: Program, keeper: Keeper) -> None:
        """The windows are restored, and triggers may call their functions."""
        super().begin(program, keeper)
        its = self._its
        self._calls = TriggerCalls(its.functions, program.event, its.compiled.columns)

    # --- a batch ----------------------------------------------------------------------------------

    def look(self, work: BatchWork) -> None:
        """Find what windows take of the leaves; those that they refuse are refused."""
        leaves = work.leaves
        if leaves is not None:
            segments = own_segments(self.program, leaves)
            work.seen = look_at_leaves(leaves, segments, partial(prepared_for, self._its))

    def change(self, work: BatchWork) -> None:
        """Segments that have not been applied change the windows; what fires is carried out."""
        leaves = work.leaves
        if work.batch is None or leaves is None:
            return
        with self.failures():
            prepared, groups = self._fresh(work, leaves)
            if len(prepared.segments):
                self._add(prepared, groups)

    def _fresh(self, work: BatchWork, leaves: Leaves) -> tuple[Prepared, Keyed]:
        """Leaves of segments that have not been applied, each with its group."""
        batch, routed, its = work.batch, work.routed, self._its
        assert batch is not None, "asked before"
        assert routed is not None, "the phase before"
        prepared: Prepared | None = work.seen
        fresh = self.keeper.fresh(batch, routed.withdrawn)
        groups = chosen(work.groups, leaves.parents)
        if fresh is not None:
            segments = own_segments(self.program, leaves) if prepared is None else prepared.segments
            where = np.flatnonzero(fresh if leaves.parents is None else fresh[leaves.parents])
            prepared, groups = prepared_for(its, chosen(segments, where)), chosen(groups, where)
        assert prepared is not None, "what windows refuse is withdrawn"
        keys = keyed(prepared.segments, groups)
        if prepared.unique is not None and len(prepared.segments):
            new = self.keeper.first_seen(self._shards_of(keys), prepared.unique)
            if not all(new):
                where = np.flatnonzero(new)
                keys = chosen(keys, where)
                prepared = prepared_for(its, chosen(prepared.segments, where))
        assert len(keys) == len(prepared.segments), "each segment has a group"
        return prepared, keys

    def _add(self, prepared: Prepared, groups: Keyed) -> None:
        segments, keeper = prepared.segments, self.keeper
        added = self.windows.add(segments, groups, keeper.clock.wall_ms(), prepared.taken)
        keeper.changed(len(segments))
        carry_out(keeper, self._emitted(added.firings))
        if not added.late:
            return
        self.program.metrics.add(LATE_SEGMENTS, len(added.late))
        assert len(added.late) <= len(segments), "each is late once"
        where = np.array(added.late, np.intp)
        shards = self._shards_of(chosen(groups, where))
        emit_late(keeper, self._its.late_to, as_dicts(chosen(segments, where)), shards)

    def _shards_of(self, groups: Keyed) -> list[int]:
        if self._its.group_key is None:
            return [0] * len(groups)
        found: list[int] = shards_in(self.keeper.shard_of, groups).tolist()
        return found

    def takes(self, records: Sequence[StatesRecord]) -> bool:
        """Whether none of the segments of these states may be late."""
        return not self.windows.any_late(records)

    def merge(self, records: Sequence[StatesRecord]) -> None:
        """Add states of groups that were folded elsewhere from other segments."""
        self.windows.merge(records)

    # --- event time, timers, the end --------------------------------------------------------------

    @property
    def next_tick_ms(self) -> int | None:
        """When a timer of a trigger is due."""
        return self.windows.next_tick_ms

    def tick(self, now_ms: int) -> Pages:
        """Timers of triggers that are due fire."""
        return self._pages(self.windows.tick(now_ms))

    def advance(self, watermark: Number) -> Pages:
        """Extents that the watermark has passed fire."""
        return self._pages(self.windows.advance(watermark))

    def measures(self) -> StateMeasures:
        """What all windows have."""
        return self.windows.measures()

    def complete(self, shards: Collection[int], now_ms: int) -> Pages:
        """Every extent fires once more."""
        return self._pages(self.windows.complete(shards, now_ms))

    @property
    def doing(self) -> str:
        """What is being computed elsewhere, in words; empty if nothing is."""
        return self.windows.doing

    def _pages(self, fired: firing.FiringPages) -> Pages:
        for page in fired:
            yield PENDING if page is firing.PENDING else self._emitted(page)

    def _emitted(self, fired: Iterable[AnyFiring]) -> Page:
        return emitted(self._calls, fired, self.keeper.closed)

    # --- what is recorded, restored and asked -----------------------------------------------------

    def take_changes(self) -> Records:
        """What has changed since the last call, by key group."""
        return self.windows.take_changes()

    def take_files(self) -> Sequence[StateFiles]:
        """Files of windows by Spark."""
        return self.windows.take_files()

    def freeze(self, shards: Collection[int]) -> Callable[[int], list[Record]]:
        """What gives the whole state of each of these key groups as it is now."""
        return self.windows.freeze(shards)

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records to a key group. Raises UserError: they are of a window that the task does
        not have."""
        self.windows.restore(shard, records)

    def resume(self, watermark: Number) -> None:
        """What the watermark has passed has fired."""
        self.windows.resume(watermark)

    def query(
        self, name: str, asked: Selection = EVERYTHING, extents_max: int | None = None
    ) -> list[Extent]:
        """Extents of a window. Raises UserError: there is no such window."""
        return self.windows.query(name, asked, extents_max)

    def look_up(self, name: str, keys: Sequence[Any]) -> list[list[Any]]:
        """For each group a list with its state, which is empty if it has none."""
        return self.windows.look_up(name, keys)


def windowed_operator(its: Windowed, context: OperatorContext) -> WindowedOperator:
    """The windows of a task, with nothing in them."""
    elsewhere = context.make_elsewhere
    windows = TaskWindows(its.compiled, shard_of, context.holder, context.page_max, elsewhere)
    return WindowedOperator(its, windows)


def own_segments(program: Program, leaves: Leaves) -> Segments:
    """Copies of dicts where children get the segments too: they may change them, and a state may
    keep them."""
    shared = program.routes.sends_to and program.entry.type == "function"
    return copies_of(leaves.segments) if shared else leaves.segments


def prepared_for(its: Windowed, segments: Segments) -> Prepared:
    """What windows need of segments. Raises UserError: they refuse one."""
    return prepare_batch(its.compiled, segments, its.unique_key)
