"""The state of a task over one share of its groups, windows or a join: the code of peers, in
memory.

What fires is sent on when the batch, or the page, is through. When all has come every extent fires
for the last time, and of a join comes what has met none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.flow.batch import Batch, EncodedRun, Segments
from onyx.flow.columns.record_batch import Columns
from onyx.joins.streams.spans import LEFT, RIGHT
from onyx.keystate.records import StatesRecord
from onyx.keystate.uniqueness import UniqueKeys
from onyx.program.assign import assign
from onyx.program.batch_work import BatchWork
from onyx.program.firing import carry_out
from onyx.program.held_kinds import HeldKinds
from onyx.program.prepare import prepare
from onyx.program.program import Program
from onyx.program.streams.apply import join_batch, look
from onyx.runs import Numbers
from onyx.spark_query.failure import TaskFailed
from onyx.spark_query.folding.contents import Contents
from onyx.spark_query.folding.untracked import UntrackedFolding
from onyx.spark_query.tree import Tree
from onyx.windows.firing import Pages


class Fold(UntrackedFolding, HeldKinds):
    """The state of one share (`program.folding.Folding`, `program.streams.apply.Joining`)."""

    def __init__(self, tree: Tree, program: Program, contents: Contents) -> None:
        """`contents`: what the share holds."""
        super().__init__(program)
        self._tree = tree
        self._program, self._task = program, program.task
        self.held = contents.held
        self._shards = contents.shards
        self._unique = contents.unique
        self._emitted: list[tuple[str | None, Segments]] = []

    def add(self, segments: Segments, upstream: str) -> None:
        """Segments have come.

        Args:
            segments: none, if only the columns of those of a side are to be known.
            upstream: the task that has sent them, where that matters.
        """
        if isinstance(segments, Columns) and not len(segments):
            self._know(segments, upstream)
            return
        self._tree.push(self._task, Batch(segments, upstream=upstream or None), self)
        self._send()

    def _know(self, columns: Columns, upstream: str) -> None:
        join = self._program.streams
        assert join is not None, "only of joins rows are sent that have none"
        self.joined.saw(RIGHT if join.by_task[upstream] else LEFT, columns.record_batch.schema)

    def merge(self, records: Sequence[StatesRecord]) -> None:
        """States that were folded before the shuffle have come."""
        self.windows.merge(records)

    def advance(self, mark: int) -> None:
        """Event time has come to this."""
        self._fire(self.held.advance(mark))

    def passed_on(self, mark: int) -> int:
        """Event time of what is sent on, when all has been made that this one brings."""
        return self.held.passed_on(mark)

    def tick(self) -> None:
        """Timers fire that are due."""
        self._fire(self.held.tick(self.clock.wall_ms()))

    def end(self) -> None:
        """Everything has come."""
        self._fire(self.held.complete(self._shards, self.clock.wall_ms()))

    def _fire(self, pages: Pages) -> None:
        try:
            for page in pages:
                carry_out(self, page)
                self._send()
        except TaskFailed:  # of a task that gets what was emitted
            raise
        except Exception as error:
            raise self._tree.failure(self._task, "assign-windows", error) from error

    def _send(self) -> None:
        emitted, self._emitted = self._emitted, []
        for child, segments in emitted:
            self._tree.emit(self._task, segments, child)

    # What segments and firings do.

    def look(self, work: BatchWork) -> None:
        """What the state needs of a batch is found before it is routed."""
        if self._program.streams is not None:
            look(self._program.streams, work)
        elif work.leaves is not None:
            work.prepared = prepare(self._program, work.leaves)

    def change(self, work: BatchWork) -> None:
        """A batch that has been routed changes the state."""
        if self._program.streams is None:
            assign(self._program, self, work)
            return
        with self.calls.failures():
            join_batch(self._program, self, work)

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """By the task's uniqueness key: for each segment, with its shard, whether it is new."""
        return [
            self._unique.setdefault(shard, UniqueKeys()).first_seen([value])[0]
            for shard, value in zip(shards, values, strict=True)
        ]

    def emit(
        self,
        shard: int,
        segments: Segments,
        child: str | None = None,
        encoded: EncodedRun | None = None,
    ) -> None:
        """Send these when the batch, or the page, is through."""
        if len(segments):
            self._emitted.append((child, segments))

    def emit_for(self, shard: int, segments: Segments, parents: Numbers) -> None:
        """Send these like `emit`: no request waits for what a query makes."""
        self.emit(shard, segments)

    def changed(self, segments: int) -> None:
        """Nothing is recorded."""
