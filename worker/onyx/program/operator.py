"""The two interfaces between the state of a task and whoever runs the task.

An `Operator` is the state of one task over some key groups, and what the task does with a batch
because of it. A `Keeper` is what an operator asks of whoever keeps it: on a peer
`task.state.keeper.StateKeeper`, which has a state log, in a query of Spark
`spark_query.shares.Fold`.
Neither knows the other's class, so a new kind of operator is a room of `operators/` and a row of
`operators.table`, and runs on both engines.

The order of calls, which each operator may rely on:

    restore(shard, records)* -> restored -> begin
    for each batch:       apply, unless it has leaves -> look -> (it is routed) -> merge* -> change
    between two batches:  merge, advance, tick, complete, take_changes, freeze, query, look_up
    at the end:           ends_at -> complete, for each key group once -> close

Tests assert it of all operators (`tests/support/operators/ordered`), whatever they test.
`advance`, `tick` and `complete` give pages (`keystate.pages`): until the last page of one nothing
else is called but `take_changes`, `freeze`, `query` and `look_up`. When a call raises, the state is
between two batches, and must be restored before it is used again. Nothing blocks but code of the
user's.

Rejected: an interface for each kind, with one class that implements all of them, and a task that
asks which kind it has at each step: a new kind changed 50 modules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from onyx.base.runs import Numbers, taken
from onyx.base.seams import Clock
from onyx.errors import contained, describe
from onyx.flow.batch import Batch, EncodedRun, Segment, Segments
from onyx.flow.segment import SegmentFailure
from onyx.ids import TaskName
from onyx.keystate.extents import Extent, Number
from onyx.keystate.pages import Emission, Pages
from onyx.keystate.records import Record, Records, StateFiles, StatesRecord
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.ledger.applied import Mask, repeats_of
from onyx.program.batch_work import BatchWork, apply
from onyx.program.failure import Failure, code_line
from onyx.program.outcomes import NOBODY, Answering
from onyx.program.phases import Phase
from onyx.program.program import Program
from onyx.reports.measures import StateMeasures


class Keeper(Protocol):
    """What an operator asks of whoever keeps it."""

    clock: Clock

    @property
    def shard_of(self) -> Mapping[Any, int]:
        """The key group of a group."""
        ...

    @property
    def closed(self) -> Container[int]:
        """Key groups that have fired for the last time: nothing more is emitted for them."""
        ...

    def unapplied(self, batch: Batch) -> Mask | None:
        """Which segments have not been applied yet; nothing changes. None: all of them."""
        ...

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """Which segments have not been applied yet; from now on they are, but those that are
        withdrawn. None: all of them."""
        ...

    def has_seen(self, shard: int, value: Any) -> bool:
        """Whether a segment with this uniqueness key has been applied."""
        ...

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """By the task's uniqueness key: for each segment, with its key group, whether it is new.
        From now on it is not."""
        ...

    def emit(
        self,
        shard: int,
        segments: Segments,
        child: str | None = None,
        encoded: EncodedRun | None = None,
    ) -> None:
        """Send these when that is safe.

        Args:
            child: the only one that they are for; None: all.
            encoded: their bytes for a state log, if somebody has them.
        """
        ...

    def emit_for(self, shard: int, segments: Segments, parents: Numbers) -> None:
        """Send these like `emit`, each made of a segment of the tree with this root."""
        ...

    def changed(self, segments: int) -> None:
        """Note that so many segments, or firings, have changed the state."""
        ...


class Operator(ABC):
    """The state of one task over some key groups, and what the task does because of it.

    Not thread-safe. What a kind of operator does not do, is here: it says nothing, and makes
    nothing.
    """

    program: Program
    """What the task runs; when it has begun."""
    keeper: Keeper
    """Who keeps the state; when it has begun."""

    def begin(self, program: Program, keeper: Keeper) -> None:
        """The state is restored, and batches may come."""
        self.program, self.keeper = program, keeper

    def forget(self, frontiers: Mapping[int, int]) -> None:
        """Nothing below these positions of their partitions comes again."""

    # --- a batch ----------------------------------------------------------------------------------

    def apply(self, work: BatchWork, examined: bool, answering: Answering = NOBODY) -> None:
        """Make leaves of a batch, unless they are there already.

        Args:
            examined: every segment of the batch can travel between tasks.
            answering: says which segments requests have brought.
        """
        apply(self.program, work, examined)

    def look(self, work: BatchWork) -> None:
        """Find what `change` needs of the leaves, before they are routed; those that cannot be
        used are refused."""

    @abstractmethod
    def change(self, work: BatchWork) -> None:
        """A batch that has been routed counts as applied, and changes the state."""

    def takes(self, records: Sequence[StatesRecord]) -> bool:
        """Whether `merge` does the same as the segments themselves."""
        return False

    def merge(self, records: Sequence[StatesRecord]) -> None:
        """Add states that were folded elsewhere from other segments."""
        raise AssertionError("only windows take states in place of segments")

    def saw(self, parent: str, schema: pa.Schema) -> None:
        """Segments of a parent have these columns, wherever they have gone."""

    @property
    def moves(self) -> int:
        """How often it has taken, made or heard something, of an operator with an inbox."""
        return 0

    def why_left(self, waiting: Mapping[TaskName, int]) -> str:
        """What an operator with an inbox may wait for, in words.

        Args:
            waiting: the tasks of which it leaves segments, with how many.
        """
        return ""

    # --- event time, timers, the end --------------------------------------------------------------

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` is due next, in ms since the epoch; None when no timer runs."""
        return None

    @property
    def unfinished(self) -> bool:
        """Whether `tick` is to be called, and all its pages be asked for, before anything else."""
        return False

    def tick(self, now_ms: int) -> Pages:
        """Timers that are due fire."""
        return iter(())

    def advance(self, watermark: Number) -> Pages:
        """The watermark of the task has risen."""
        return iter(())

    def passed_on(self, watermark: int) -> int:
        """The watermark of what is made, when all has been made that this one brings."""
        return watermark

    @property
    def end_is_known(self) -> bool:
        """Whether `complete` may come: it knows where event time ends, or need not."""
        return True

    def ends_at(self, newest_ms: int | None) -> None:
        """Nothing comes any more, and the greatest event time was this."""

    @abstractmethod
    def complete(self, shards: Collection[int], now_ms: int) -> Pages:
        """The job ends for these key groups."""

    @property
    def doing(self) -> str:
        """What is being computed elsewhere, in words; empty if nothing is."""
        return ""

    def measures(self) -> StateMeasures:
        """What is counted of the state anyway. From any thread: what is added meanwhile may be
        missing, and it may raise RuntimeError or LookupError, to be asked again."""
        return StateMeasures()

    # --- what is recorded, restored and asked -----------------------------------------------------

    @abstractmethod
    def take_changes(self) -> Records:
        """What has changed since the last call, by key group."""

    @property
    def rest_s(self) -> float:
        """How long the next chunk should wait, because changes take their time to be found."""
        return 0.0

    def take_files(self) -> Sequence[StateFiles]:
        """Files that belong to the changes taken last."""
        return ()

    @abstractmethod
    def freeze(self, shards: Collection[int]) -> Callable[[int], Iterable[Record]]:
        """What gives the whole state of each of these key groups as it is now: later, from any
        thread, and as it is read."""

    @abstractmethod
    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of `take_changes` or `freeze`, in order, to a key group. Raises UserError:
        the state is of something that the task does not have."""

    def restored(self) -> None:
        """All key groups are restored."""

    def resume(self, watermark: Number) -> None:
        """The watermark was here when the state was recorded that has been restored: what it has
        passed has fired. Where records do not say that themselves."""

    @abstractmethod
    def query(
        self, name: str, asked: Selection = EVERYTHING, extents_max: int | None = None
    ) -> list[Extent]:
        """The states of a name. Raises UserError: there is no such name."""

    def look_up(self, name: str, keys: Sequence[Any]) -> list[list[Any]]:
        """For each group (`keystate.groups.hashable_key`) a list with its state, which is empty if
        it has none. Raises as `query`."""
        raise AssertionError("validated: tasks look up windows and states of functions")

    def close(self) -> None:
        """The task leaves it. It is not used any more."""

    @contextmanager
    def failures(self) -> Iterator[None]:
        """What is raised inside is a failure of the state of the task."""
        try:
            yield
        except Failure:
            raise
        except BaseException as raised:
            error = contained(raised)
            its = self.program.operator
            assert its is not None, "the program of a task with state"
            detail = f"{its.words} of {its.task}: {describe(error)}{code_line(error)}"
            raise Failure(Phase.ASSIGN_WINDOWS.value, error, detail) from error


def carry_out(keeper: Keeper, page: Sequence[Emission]) -> None:
    """Send what was made while something fired. Nobody reads what is made for a key group that has
    fired for the last time."""
    for made in page:
        closed = made.shard in keeper.closed
        if made.firings or closed:
            keeper.changed(max(made.firings, 1))  # the period of a group may end then as well
        if not closed:
            keeper.emit(made.shard, made.segments, made.child, made.encoded)


def keep_made(keeper: Keeper, work: BatchWork) -> None:
    """A batch that has been routed counts as applied, and what was made of it in place of leaves
    may be sent."""
    if work.batch is None or work.leaves is None:
        return
    assert work.routed is not None, "the phase before"
    keeper.fresh(work.batch, work.routed.withdrawn)
    for shard, segments in work.made:
        indices = work.made_of.get(shard)
        if indices is None or work.batch.roots is None:
            keeper.emit(shard, segments)
        else:
            keeper.emit_for(shard, segments, taken(work.batch.roots, np.array(indices, np.intp)))
    keeper.changed(len(work.batch))


def with_repeats(batch: Batch, failures: list[SegmentFailure]) -> list[SegmentFailure]:
    """The failures of a batch whose function is called once for segments that are the same: where
    that fails, all of them have failed."""
    if not failures:
        return failures
    failed = dict(failures)
    same = repeats_of(batch.roots, batch.ids, np.array(sorted(failed), np.intp))
    return sorted(
        [*failures, *((n, failed[first]) for n, first in same.items())], key=itemgetter(0)
    )


def emit_late(
    keeper: Keeper, children: Sequence[str], late: Sequence[Segment], shards: Sequence[int]
) -> None:
    """Send segments that came late to the children that are there for them."""
    for child in children:
        for segment, shard in zip(late, shards, strict=True):
            keeper.emit(shard, [segment], child)
