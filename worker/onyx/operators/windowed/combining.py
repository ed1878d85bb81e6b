"""A batch folded where it comes from, for a child whose windows are combined (`model.combining`).

Its windows are the child's own, without what fires them, and new for each batch: what they hold
then are the states of exactly these segments.
"""

from __future__ import annotations

from collections.abc import Callable

from onyx.flow.batch import Batch
from onyx.flow.groups.keys import shard_of
from onyx.flow.predicates import Resolve
from onyx.keystate.coded import different, keyed
from onyx.keystate.records import StatesRecord
from onyx.model.job import CatalogEntry, Job
from onyx.operators.windowed.definition import Windowed, windowed
from onyx.operators.windowed.operator import WindowedOperator, prepared_for
from onyx.program.batch_work import groups_of
from onyx.program.program import Definition
from onyx.windows.compiled import CompiledWindows
from onyx.windows.prepared import Prepared
from onyx.windows.task_windows import TaskWindows

SEGMENTS_A_GROUP_MIN = 2
"""On the average; below it states would take as long as segments."""
States = dict[int, list[StatesRecord]]
"""States of windows by shard."""


class Combiner:
    """The windows of one child, as they are folded before segments are sent."""

    def __init__(self, its: Windowed, entry: CatalogEntry) -> None:
        self._its = its
        self._entry = entry
        self._compiled = its.compiled.only_folding()
        self._late = any(each.lateness is not None for each in its.compiled.windows)

    def fold(self, batch: Batch, watermark: int | None) -> States | None:
        """The states that the windows have of a batch alone. None: the segments are to be sent,
        because one of them is wrong, which the child reports, or may be late, or because they are
        of nearly as many groups.

        Args:
            watermark: what the child may have heard of before the batch.
        """
        try:
            groups = groups_of(
                self._its.group_key, self._its.group_keys, self._entry, batch.segments, batch.keys
            )
            prepared = prepared_for(self._its, batch.segments)
        except Exception:
            return None
        if self._late and watermark is not None and _is_behind(prepared, watermark):
            return None
        if SEGMENTS_A_GROUP_MIN * len(different(keyed(batch.segments, groups))) > len(batch):
            return None
        windows = TaskWindows(self._compiled, shard_of)
        windows.add(prepared.segments, groups, 0, prepared.taken)
        return states_of(windows)


def combiner_of(job: Job, task: str, resolve: Resolve) -> Combiner | None:
    """What folds segments for a task; None when it has no windows.

    Raises:
        UserError: a function of the task is not registered or not of the right kind.
    """
    its = windowed(job, task, resolve)
    return None if its is None else Combiner(its, job.entry(task))


def folding_operator(
    its: Definition, windows: Callable[[CompiledWindows], TaskWindows]
) -> WindowedOperator:
    """The windows of a task where they only fold, and nothing fires.

    Args:
        windows: makes them.
    """
    assert isinstance(its, Windowed), "validated: only windows are folded elsewhere"
    return WindowedOperator(its, windows(its.compiled.only_folding()))


def states_of(windows: TaskWindows) -> States:
    """The states of windows that hold nothing else, and gave none of it before."""
    found: States = {}
    for shard, records in windows.take_changes().items():
        states = [each for each in records if isinstance(each, StatesRecord)]
        if states:
            found[shard] = states
    return found


def _is_behind(prepared: Prepared, watermark: int) -> bool:
    return any(each.is_behind(watermark) for each in prepared.taken)
