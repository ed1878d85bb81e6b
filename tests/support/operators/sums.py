"""A kind of operator that the product does not have: the sum of a key for each group, emitted at
the end. It is all that a new kind needs: a definition, an operator, and a row of the table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from onyx.base.on_demand import OnDemand
from onyx.flow.batch import as_dicts
from onyx.flow.groups.getters import key_getter
from onyx.flow.predicates import Resolve
from onyx.keystate.coded import rows
from onyx.keystate.extents import FROM, TO, Extent
from onyx.keystate.groups import dump_keys, group_value, hashable_keys
from onyx.keystate.pages import Emission, Pages
from onyx.keystate.records import Record, Records, SetStates, append
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.model.job import Job
from onyx.model.workflow import sources_above
from onyx.operators.context import OperatorContext
from onyx.operators.table import OperatorKind
from onyx.program.batch_work import BatchWork
from onyx.program.operator import Operator
from onyx.program.program import Definition

NAME = "sums"


class Sums(Definition, frozen=True, kw_only=True):
    """Sums by group."""

    words = "sums"
    made_by = OnDemand(f"{__name__}:SumsOperator")


def sums(job: Job, task: str, resolve: Resolve) -> Sums:
    """The sums of a task that says so by the name of its state."""
    fed_by = frozenset(sources_above(job, task))
    return Sums(task=task, group_key=key_getter(job.entry(task), resolve), fed_by=fed_by)


class SumsOperator(Operator):
    """The sums of one task."""

    def __init__(self, its: Sums, context: OperatorContext) -> None:
        self._sums: dict[int, dict[Any, int]] = defaultdict(dict)
        self._changed: set[tuple[int, Any]] = set()

    def change(self, work: BatchWork) -> None:
        """Segments that are fresh are added."""
        batch, routed = work.batch, work.routed
        if batch is None or routed is None or work.leaves is None or work.groups is None:
            return
        fresh = self.keeper.fresh(batch, routed.withdrawn)
        there = np.ones(len(batch), np.bool_) if fresh is None else fresh
        groups, segments = rows(work.groups), as_dicts(batch.segments)
        for index in np.flatnonzero(there).tolist():
            group, shard = groups[index], self.keeper.shard_of[groups[index]]
            mine = self._sums[shard]
            mine[group] = mine.get(group, 0) + segments[index]["v"]
            self._changed.add((shard, group))
        self.keeper.changed(len(batch))

    def complete(self, shards: Collection[int], now_ms: int) -> Pages:
        """All sums of these key groups."""
        for shard in shards:
            made = [
                {"key": group_value(group), "sum": total}
                for group, total in self._sums[shard].items()
            ]
            yield [Emission(shard, made)]

    def take_changes(self) -> Records:
        """The sums that have changed."""
        records: Records = {}
        for shard, group in sorted(self._changed, key=repr):
            append(records, shard, self._record(shard, [group]))
        self._changed.clear()
        return records

    def freeze(self, shards: Collection[int]) -> Callable[[int], list[Record]]:
        """All sums, as they are now."""
        found = {shard: self._record(shard, list(self._sums[shard])) for shard in shards}
        return lambda shard: [found[shard]]

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Sums replace those before."""
        for record in records:
            assert isinstance(record, SetStates), "what `_record` has made"
            groups = hashable_keys(record.groups)
            self._sums[shard] |= zip(groups, record.states, strict=True)

    def query(
        self, name: str, asked: Selection = EVERYTHING, extents_max: int | None = None
    ) -> list[Extent]:
        """All sums."""
        return [
            Extent(group_value(group), FROM, TO, total)
            for mine in self._sums.values()
            for group, total in mine.items()
        ]

    def _record(self, shard: int, groups: list[Any]) -> SetStates:
        states = [self._sums[shard][group] for group in groups]
        return SetStates(NAME, 0, dump_keys(groups), states)


KIND = OperatorKind(lambda _, entry: NAME in (entry.state or {}), OnDemand(f"{__name__}:sums"))
