"""The windows of a task over one share of its groups: the code of peers, in memory.

What fires is sent on when the batch, or the page, is through. When all has come every extent fires
for the last time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.flow.batch import Batch, Segments
from onyx.program.firing import carry_out
from onyx.program.program import Program
from onyx.spark_query.failure import TaskFailed
from onyx.spark_query.folding.contents import Contents
from onyx.spark_query.folding.untracked import UntrackedFolding
from onyx.spark_query.tree import Tree
from onyx.windows.firing import Pages
from onyx.windows.records import StatesRecord
from onyx.windows.uniqueness import UniqueKeys


class Fold(UntrackedFolding):
    """The windows of one share (`program.folding.Folding`)."""

    def __init__(self, tree: Tree, program: Program, contents: Contents) -> None:
        """`contents`: what the windows of the share hold."""
        super().__init__(program)
        self._tree = tree
        self._task = program.task
        self.windows = contents.windows
        self._shards = contents.shards
        self._unique = contents.unique
        self._emitted: list[tuple[str | None, Segments]] = []

    def add(self, segments: Segments) -> None:
        """Segments have come."""
        self._tree.push(self._task, Batch(segments), self)
        self._send()

    def merge(self, records: Sequence[StatesRecord]) -> None:
        """States that were folded before the shuffle have come."""
        self.windows.merge(records)

    def advance(self, mark: int) -> None:
        """Event time has come to this."""
        self._fire(self.windows.advance(mark))

    def tick(self) -> None:
        """Timers fire that are due."""
        self._fire(self.windows.tick(self.clock.wall_ms()))

    def end(self) -> None:
        """Everything has come."""
        self._fire(self.windows.complete(self._shards, self.clock.wall_ms()))

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

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """By the task's uniqueness key: for each segment, with its shard, whether it is new."""
        return [
            self._unique.setdefault(shard, UniqueKeys()).first_seen([value])[0]
            for shard, value in zip(shards, values, strict=True)
        ]

    def emit(self, shard: int, segments: Segments, child: str | None = None) -> None:
        """Send these when the batch, or the page, is through."""
        if len(segments):
            self._emitted.append((child, segments))

    def changed(self, segments: int) -> None:
        """Nothing is recorded."""
