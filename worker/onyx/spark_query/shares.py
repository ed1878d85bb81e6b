"""What a fragment does with one share of the groups of a task: one bucket, row by row.

Over bounded inputs the state of a bucket begins empty, and what waits in it comes behind the last
row. In a micro-batch it goes on from what the last one has left, and what there is behind it is
reported, to be committed with the rest. There timers fire before the first row and behind the last.

What keeps the state there (`Fold`) is the code of peers, in memory. What is made is sent on when
the batch, or the page, is through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from onyx.base.runs import Numbers
from onyx.flow.batch import Batch, EncodedRun, Indices, Segments
from onyx.flow.columns.record_batch import Columns
from onyx.keystate.pages import Page, Pages
from onyx.keystate.records import StatesRecord
from onyx.keystate.uniqueness import UniqueKeys
from onyx.program.operator import carry_out
from onyx.program.phases import Phase
from onyx.program.program import Program
from onyx.spark.driver.request import BucketState
from onyx.spark_query.arrivals import Arrivals, Report, before, ended, heard, new_reading, origins
from onyx.spark_query.failure import TaskFailed
from onyx.spark_query.folding.combine import Untracked
from onyx.spark_query.folding.inbox import Inbox
from onyx.spark_query.folding.share_state import KeptStates, ShareState
from onyx.spark_query.micro_batches import Reached
from onyx.spark_query.programs import Query
from onyx.spark_query.rows import ENDINGS, Ending, Row, report, segments_of, states_of
from onyx.spark_query.tree import Tree
from onyx.windows.watermarks import Mark


class Share:
    """One bucket of a task, from the first row of a fragment to the last."""

    def __init__(
        self, query: Query, tree: Tree, task: str, bucket: int, reached: Reached | None
    ) -> None:
        """`reached`: what was committed before the micro-batch; None: over bounded inputs.

        Raises:
            TaskFailed: its state cannot be read.
        """
        self._tree, self._task, self._reached = tree, task, reached
        self._query, self._program = query, tree.program(task)
        self._state = BucketState(task, bucket)
        self.reading = new_reading()
        self._heard = 0
        if reached is not None:
            mine = [each for each in reached.states if (each.task, each.bucket) == (task, bucket)]
            self._state = mine[0] if mine else self._state
        self.fold: Fold | None = None
        self._inbox: Inbox | None = None
        self._closed = False
        held = dict[str, Mark]()
        if self._program.operator is not None and not self._state.over:
            try:
                self._contents = self._loaded()
            except Exception as error:
                raise self._failure(error) from error
            self.fold = Fold(tree, self._program, self._contents)
            held = dict(self._contents.left.said)
        known = None if reached is None else before(query, reached, self._state, held)
        self.arrivals = Arrivals(origins(query, task), known)
        if self.fold is not None and self._program.has_inbox:
            self._inbox = Inbox(
                self.fold, self._contents.left, self.arrivals.said, self._hear_behind
            )
            self._note_ends()

    def _loaded(self) -> ShareState:
        """What the bucket holds before the first row."""
        if self._reached is not None:
            self._kept = KeptStates(self._query)
            return self._kept.load(self._program, self._state)
        contents = ShareState.empty(self._program, self._state.bucket, self._query.config)
        contents.restore({})
        return contents

    @property
    def mark(self) -> int | None:
        """Event time of what the bucket sends on: of a join it is behind its own."""
        mark = self.arrivals.mark
        return mark if mark is None or self.fold is None else self.fold.operator.passed_on(mark)

    def begin(self) -> None:
        """Timers fire that were due before the micro-batch."""
        if self.fold is not None and self._reached is not None:
            self.fold.tick()
        if self._inbox is not None:
            self._carefully(self._inbox.settle)

    def take(self, row: Row) -> None:
        """Work on a row."""
        if row.kind in ENDINGS:
            self._heard = heard(self._heard, row)
        fold, segments = self.fold, segments_of(row)
        if self._inbox is not None:
            self._carefully(partial(self._inbox.take, row, segments))
            return
        if row.kind == "states" and fold is not None:
            fold.merge(states_of(row))
        elif fold is not None and (len(segments) or row.upstream):
            fold.add(segments, row.upstream)
        elif len(segments):
            self._tree.push(self._task, Batch(segments))
        self._hear(row)

    def _hear(self, row: Row) -> None:
        fold, risen = self.fold, self.arrivals.hear(row)
        if fold is not None and risen and self.arrivals.mark is not None:
            fold.advance(self.arrivals.mark)

    def _hear_behind(self, row: Row) -> None:
        """All before a row was taken."""
        self._hear(row)
        if row.kind == "end" and self.fold is not None:
            self._note_ends()
            self.fold.tick()

    def _note_ends(self) -> None:
        """What has ended for an operator with an inbox: that of which nothing is left."""
        going = self.arrivals.open | self._contents.left.origins.keys()
        self._contents.ended.clear()
        self._contents.ended.update(ended(self._query, self._task, going))

    def end(self) -> list[Row]:
        """All rows have come; what there is to report.

        Raises:
            TaskFailed: its state cannot be written.
        """
        over = self._reached is None or self._all_has_come
        if self.fold is not None and over:
            if self._inbox is not None:
                self._finish(self._inbox)
            self.fold.end(self.arrivals.newest_ms)
            self.close()
        elif self.fold is not None:
            self.fold.tick()
            if self._inbox is not None:
                self._carefully(self._inbox.settle)
        if self._reached is None:
            return []
        number = self._reached.batches + 1
        try:
            said = Report(self._held(number, over), self._heard)
        except Exception as error:
            raise self._failure(error) from error
        task, origin = self._state.task, f"{self._state.task}:{self._state.bucket}"
        return [report("held", task, said, origin, number, self.reading)]

    def close(self) -> None:
        """Nobody works on the bucket any more."""
        if self.fold is not None and not self._closed:
            self._closed = True
            self.fold.operator.close()

    @property
    def _all_has_come(self) -> bool:
        """Whether nothing more comes, though some of it may be left."""
        waiting = frozenset[str]() if self._inbox is None else self._contents.left.ended
        return self.arrivals.open <= waiting

    def _finish(self, inbox: Inbox) -> None:
        """All that is left in the inbox is taken."""
        if self._reached is None:  # a Spark stage does not say that it has ended
            self.arrivals.close()
        self._carefully(partial(inbox.finish, self._note_ends))

    def _carefully(self, call: Callable[[], object]) -> None:
        try:
            call()
        except TaskFailed:
            raise
        except Exception as error:
            raise self._failure(error) from error

    @property
    def ending(self) -> Ending:
        """What those below hear behind it."""
        if self._reached is None or self.arrivals.over:
            return "end"
        return "idle" if self.arrivals.idle else "pause"

    def _held(self, number: int, over: bool) -> BucketState:
        """What the bucket knows behind the batch."""
        arrivals, fold, state = self.arrivals, self.fold, self._state
        held = BucketState(
            state.task, state.bucket, arrivals.mark, self.mark, arrivals.idle, over=over
        )
        if fold is None or over:
            return held
        files = self._kept.save(self._contents, state, number)
        due_ms, left = fold.operator.next_tick_ms, 0
        if self._inbox is not None:
            due_ms = self._inbox.due_ms(due_ms)
            left = sum(self._contents.left.counts.values())
        held = msgspec.structs.replace(held, files=files, due_ms=due_ms, left=left)
        self._kept.remember(held, self._contents)
        return held

    def _failure(self, error: Exception) -> Exception:
        return self._tree.failure(self._task, Phase.ASSIGN_WINDOWS.value, error)


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
