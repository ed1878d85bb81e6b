"""A function with state over the columns of a batch: called once, with a batch of groups at a time.

What it sets is of all rows at once, so the batch fails or counts as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from onyx.codec.returns import size_bytes
from onyx.flow.batch import Batch, Indices, take
from onyx.flow.columns.record_batch import Columns
from onyx.flow.formats import COLUMNS
from onyx.flow.leaves import Leaves, of_some
from onyx.flow.segment import Refusal, SegmentFailure
from onyx.functions.returning import Returned, collecting
from onyx.keystate.coded import Groups, Keyed, shards_in
from onyx.keystate.groups import hashable_keys
from onyx.operators.keyed.definition import KeyedFunction
from onyx.operators.keyed.keyed_states import KeyedStates
from onyx.program.apply import fit_columns
from onyx.program.batch_work import BatchWork
from onyx.program.operator import Keeper, with_repeats
from onyx.program.program import Program
from onyx.windows.prepared import unique_values


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
