"""A function with state over a batch, segment by segment or once for all its columns.

It is called before the batch is routed, because what it raises has to be routed. A segment that has
failed has changed nothing, so it may come again; what a function over columns sets is of all rows
at once, so such a batch fails or counts as a whole. What the function makes is kept apart: it is
sent as what begins new trees, when what the function has changed is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from onyx.base.runs import array_of
from onyx.codec.values import size_bytes
from onyx.errors import contained
from onyx.flow.batch import COLUMNS, Batch, Indices, Segment, as_dicts, take
from onyx.flow.columns.record_batch import Columns
from onyx.flow.leaves import Leaves, of_some
from onyx.flow.segment import Refusal, SegmentFailure
from onyx.functions.returning import Returned, collecting, lost, one_by_one
from onyx.keystate.coded import Groups, Keyed, rows, shards_in
from onyx.keystate.groups import hashable_keys
from onyx.ledger.lineage import first_attempts
from onyx.operators.context import OperatorContext
from onyx.operators.keyed.definition import KeyedFunction
from onyx.operators.keyed.keyed_states import KeyedStates, MadeBefore
from onyx.program.batch_work import BatchWork, fit, fit_columns, read_groups
from onyx.program.operator import Keeper, keep_made, with_repeats
from onyx.program.outcomes import NOBODY, Answering
from onyx.program.program import Program
from onyx.windows.prepared import unique_values


class KeyedOperator(KeyedStates):
    """A function with state by key."""

    def apply(self, work: BatchWork, examined: bool, answering: Answering = NOBODY) -> None:
        """Call the function for each segment of the batch that has not been applied, or once for
        their columns."""
        batch, program = work.batch, self.program
        if batch is None or work.leaves is not None:
            return
        with self.failures():
            groups = read_groups(program, batch)
            assert groups is not None, "a task with state is grouped"
            unapplied = self.keeper.unapplied(batch)
            where = np.arange(len(batch)) if unapplied is None else np.flatnonzero(unapplied)
            if program.takes == "arrow":
                called = over_columns(self, work, groups, where)
            else:
                called = self._over_segments(work, groups, where)
            work.leaves, work.returned = called
            work.returned += lost(program.job.ack_returns, unapplied)
            if program.observed:
                program.event["results"] = work.made_as_given

    def change(self, work: BatchWork) -> None:
        """What the function has changed counts from now on."""
        if self.made_before is None or work.batch is None or work.leaves is None:
            keep_made(self.keeper, work)
        else:
            # What was made may be refused where it would go; what it was made of has been applied.
            self.keeper.fresh(work.batch, work.seen or ())
            self.keeper.changed(len(work.batch))
        if work.leaves is not None:
            self.trim()

    def _over_segments(
        self, work: BatchWork, groups: Keyed, where: Indices
    ) -> tuple[Leaves, list[Returned]]:
        assert work.batch is not None, "asked before"
        _, kept, failures = fit(self.program, work.batch.segments)
        misfits = [each for each in failures if each[0] in where]
        if kept is not None:
            where = np.intersect1d(where, kept)
        segments = as_dicts(work.batch.segments)
        with collecting(self.program.job.ack_returns, len(segments), size_bytes) as returned:
            calls = _Calls(self)
            raised = calls.over(segments, rows(groups), where.tolist())
        work.made += calls.made.items()
        work.made_of = calls.made_of
        failed = with_repeats(work.batch, sorted([*misfits, *raised], key=itemgetter(0)))
        if self.made_before is not None:
            called = np.setdiff1d(where, [index for index, _ in raised]).tolist()
            return self._in_trees(self.made_before, work, rows(groups), called, failed), returned
        return Leaves([], np.empty(0, dtype=np.intp), None, failed), returned

    def _in_trees(
        self,
        before: MadeBefore,
        work: BatchWork,
        groups: Sequence[Any],
        called: Sequence[int],
        failed: list[SegmentFailure],
    ) -> Leaves:
        """What was made of each segment, now or when it came first, as leaves."""
        batch, by_index = work.batch, dict[int, list[Segment]]()
        assert batch is not None, "asked before"
        assert batch.roots is not None, "validated: a loop is exactly once"
        assert batch.ids is not None, "with roots"
        for shard, made in work.made:
            for index, segment in zip(work.made_of[shard], as_dicts(made), strict=True):
                by_index.setdefault(index, []).append(segment)
        work.made, work.made_of, work.seen = [], {}, [index for index, _ in failed]
        roots, ids = array_of(first_attempts(batch.roots)).tolist(), array_of(batch.ids).tolist()
        assert len(roots) == len(ids) == len(batch), "each segment has a root and an id"
        for index in called:
            before.keep(groups[index], (roots[index], ids[index]), by_index.get(index, ()))
        for index in sorted({*range(len(batch))}.difference(called, work.seen)):
            found = before.of(groups[index], (roots[index], ids[index]))
            by_index[index] = found
        counts = [len(by_index.get(index, ())) for index in range(len(batch))]
        return Leaves(
            [segment for index in sorted(by_index) for segment in by_index[index]],
            np.repeat(np.arange(len(batch)), counts),
            np.concatenate([np.arange(count) for count in counts]) if counts else None,
            failed,
        )


def keyed_operator(its: KeyedFunction, context: OperatorContext) -> KeyedOperator:
    """The states of a function, with nothing in them."""
    program = context.program
    params = program.event["params"]
    return KeyedOperator(its, params, context.shards, context.holder, program.clock)


class _Calls:
    """The calls of the function for one batch."""

    def __init__(self, operator: KeyedOperator) -> None:
        its, fn = operator.its, operator.program.fn
        assert fn is not None, "asked before"
        self._fn = fn
        self._task, self._unique_key = its.task, its.unique_key
        self._keeper, self._operator = operator.keeper, operator
        self._shard_of = self._keeper.shard_of
        self._now_ms = self._keeper.clock.wall_ms()
        self._tells_apart = its.tells_apart
        self._index = 0
        self.made: dict[int, list[Segment]] = {}
        self.made_of: dict[int, list[int]] = {}
        """By shard, what was made of which segment."""

    def over(
        self, segments: list[Segment], groups: Sequence[Any], where: Sequence[int]
    ) -> list[SegmentFailure]:
        """Call it for the segments at some indices; what it has raised."""
        failures: list[SegmentFailure] = []
        call = self._call if self._unique_key is None else self._call_once
        chosen = frozenset(where) if len(where) < len(segments) else None
        for index, segment in enumerate(one_by_one(segments)):
            if chosen is not None and index not in chosen:
                continue
            self._index = index
            try:
                call(groups[index], segment)
            except BaseException as raised:
                failures.append((index, contained(raised)))
        return failures

    def _call(self, group: Any, segment: Segment) -> None:
        made = self._operator.call(self._fn, group, segment, self._now_ms)
        if made:
            shard = self._shard_of[group]
            self.made.setdefault(shard, []).extend(made)
            if self._tells_apart:
                self.made_of.setdefault(shard, []).extend([self._index] * len(made))
                assert len(self.made_of[shard]) == len(self.made[shard]), "all is of a segment"

    def _call_once(self, group: Any, segment: Segment) -> None:
        """If no segment with its uniqueness key has been applied."""
        shard = self._shard_of[group]
        (value,) = unique_values(self._task, self._unique_key or "", [segment])
        if not self._keeper.has_seen(shard, value):
            self._call(group, segment)
            self._keeper.first_seen([shard], [value])


def over_columns(
    states: KeyedStates, work: BatchWork, groups: Keyed, where: Indices
) -> tuple[Leaves, list[Returned]]:
    """Call the function for the rows at some indices; `work.made` gets what it makes.

    Returns:
        Leaves with nothing but failures, and what the function gives back.
    """
    program, its, keeper = states.program, states.its, states.keeper
    batch, fn = work.batch, program.fn
    assert batch is not None, "asked before"
    assert fn is not None, "asked before"
    rows = _fitted(program, its.unique_key, batch, groups, where)
    rows, uniques = _unique(keeper, its, rows)
    nothing = np.empty(0, dtype=np.intp)
    if not len(rows.where):
        return Leaves([], nothing, None, with_repeats(batch, rows.misfits)), []
    with collecting(program.job.ack_returns, len(rows.where), size_bytes) as returned:
        now_ms = keeper.clock.wall_ms()
        leaves = states.call_columns(fn, rows.groups, rows.columns, now_ms)
    shards = shards_in(keeper.shard_of, rows.groups)
    if not leaves.failures and uniques is not None:
        keeper.first_seen(shards.tolist(), uniques)
    assert isinstance(leaves.segments, Columns), "made by a function over columns"
    if len(leaves.segments) and its.tells_apart:
        _tell_apart(work, leaves, rows.where, shards)
    elif len(leaves.segments):
        # All into one shard: many small batches would take longer, and nobody is promised an order.
        work.made.append((int(shards[0]), leaves.segments))
    found = [each._replace(at=int(rows.where[each.at])) for each in returned]
    failed = of_some(Leaves([], nothing, None, leaves.failures), rows.where, rows.misfits)
    failed.failures = with_repeats(batch, failed.failures)
    return failed, found


def _tell_apart(work: BatchWork, leaves: Leaves, where: Indices, shards: Indices) -> None:
    """What was made of a row goes into the shard of the row: whoever takes that over waits for it
    when the segment comes again."""
    parents = np.arange(len(leaves)) if leaves.parents is None else leaves.parents
    of_row, of_shard = where[parents], shards[parents]
    for shard in np.unique(of_shard).tolist():
        chosen = np.flatnonzero(of_shard == shard)
        work.made.append((shard, take(leaves.segments, chosen)))
        work.made_of[shard] = of_row[chosen].tolist()


class _Rows(NamedTuple):
    """Rows that the function is to get."""

    columns: Columns
    groups: Groups
    where: Indices
    """The index of each in the batch."""
    misfits: list[SegmentFailure]
    """Rows of the batch that it cannot get, and why."""

    def take(self, chosen: Indices) -> _Rows:
        """Some of them."""
        columns, groups = self.columns.take(chosen), self.groups.take(chosen)
        return self._replace(columns=columns, groups=groups, where=self.where[chosen])


def _fitted(
    program: Program, unique_key: str | None, batch: Batch, groups: Keyed, where: Indices
) -> _Rows:
    """Rows of a batch that fit the schema and have a uniqueness key, if the task asks for them."""
    segments = batch.segments if len(where) == len(batch) else take(batch.segments, where)
    columns, kept, failures = fit_columns(program, segments)
    misfits: list[SegmentFailure] = [(int(where[at]), error) for at, error in failures]
    where = where if kept is None else where[kept]
    coded = groups if isinstance(groups, Groups) else Groups.of_rows(groups)
    coded = coded if len(where) == len(batch) else coded.take(where)
    found = _Rows(columns, coded, where, misfits)
    if unique_key is None:
        return found
    look = partial(unique_values, program.task, unique_key)
    bad = list(COLUMNS.bad(columns, look)) if _refuses(look, columns) else []
    if not bad:
        return found
    misfits = sorted([*misfits, *((int(where[at]), error) for at, error in bad)], key=itemgetter(0))
    without = np.delete(np.arange(len(where)), [at for at, _ in bad])
    return found.take(without)._replace(misfits=misfits)


def _refuses(look: Callable[[Columns], object], columns: Columns) -> bool:
    try:
        look(columns)
    except Refusal:
        return True
    return False


def _unique(keeper: Keeper, its: KeyedFunction, rows: _Rows) -> tuple[_Rows, list[Any] | None]:
    """Rows whose uniqueness key comes for the first time, and these keys; all without one."""
    if its.unique_key is None or not len(rows.where):
        return rows, None
    values = unique_values(its.task, its.unique_key, rows.columns)
    fresh = _first(keeper, shards_in(keeper.shard_of, rows.groups), values)
    return rows.take(fresh), [values[index] for index in fresh.tolist()]


def _first(keeper: Keeper, shards: Indices, values: list[Any]) -> Indices:
    """Rows whose uniqueness key comes for the first time."""
    seen: set[tuple[int, Any]] = set()
    fresh = []
    numbered = enumerate(zip(shards.tolist(), hashable_keys(values), strict=True))
    for index, (shard, key) in numbered:
        if (shard, key) not in seen and not keeper.has_seen(shard, values[index]):
            seen.add((shard, key))
            fresh.append(index)
    return np.array(fresh, dtype=np.intp)
