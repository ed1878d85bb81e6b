"""The keeper of the state of a task over one share of its groups: the code of peers, in memory.

What is made is sent on when the batch, or the page, is through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onyx.base.runs import Numbers
from onyx.flow.batch import Batch, EncodedRun, Indices, Segments
from onyx.flow.columns.record_batch import Columns
from onyx.keystate.pages import Page, Pages
from onyx.keystate.records import StatesRecord
from onyx.keystate.uniqueness import UniqueKeys
from onyx.program.operator import carry_out
from onyx.program.program import Program
from onyx.spark_query.failure import TaskFailed
from onyx.spark_query.folding.combine import Untracked
from onyx.spark_query.folding.share_state import ShareState
from onyx.spark_query.tree import Tree


class Fold(Untracked):
    """The state of one share."""

    def __init__(self, tree: Tree, program: Program, contents: ShareState) -> None:
        """`contents`: what the share holds."""
        super().__init__(contents.shard_of, program.clock)
        self._tree = tree
        self._task = program.task
        self.operator = contents.operator
        self._own = contents.shards
        self._unique = contents.unique
        self._emitted: list[tuple[str | None, Segments]] = []
        self.operator.begin(program, self)

    def add(self, segments: Segments, upstream: str) -> Indices:
        """Segments have come. Returns the indices of those that the operator has left.

        Args:
            segments: none, if only the columns of those of a parent are to be known.
            upstream: the task that has sent them, where that matters.
        """
        if isinstance(segments, Columns) and not len(segments):
            self.operator.saw(upstream, segments.record_batch.schema)
            return np.empty(0, np.intp)
        batch = Batch(segments, upstream=upstream or None)
        left = self._tree.push(self._task, batch, self.operator)
        self._send()
        while self.operator.unfinished:
            self.tick()
        return left

    def merge(self, records: Sequence[StatesRecord]) -> None:
        """States that were folded before the shuffle have come."""
        self.operator.merge(records)

    def advance(self, mark: int) -> None:
        """Event time has come to this."""
        self._fire(self.operator.advance(mark))

    def tick(self) -> None:
        """Timers fire that are due."""
        self._fire(self.operator.tick(self.clock.wall_ms()))

    def end(self, newest_ms: int | None) -> None:
        """Everything has come.

        Args:
            newest_ms: the greatest event time.
        """
        self.operator.ends_at(newest_ms)
        self._fire(self.operator.complete(self._own, self.clock.wall_ms()))

    def _fire(self, pages: Pages) -> None:
        try:
            while (page := self._next(pages)) is not None:
                carry_out(self, page)
                self._send()
        except TaskFailed:  # of a task that gets what was emitted
            raise
        except Exception as error:
            raise self._tree.failure(self._task, "assign-windows", error) from error

    def _next(self, pages: Pages) -> Page | None:
        with self.operator.failures():
            return next(pages, None)

    def _send(self) -> None:
        emitted, self._emitted = self._emitted, []
        for child, segments in emitted:
            self._tree.emit(self._task, segments, child)

    # What the operator asks.

    def has_seen(self, shard: int, value: Any) -> bool:
        """Whether a segment with this uniqueness key has come."""
        return shard in self._unique and self._unique[shard].has_seen(value)

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
