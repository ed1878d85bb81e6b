"""What a fragment does with one share of the groups of a task: one bucket, row by row.

Over bounded inputs the state of a bucket begins empty, and what waits in it comes behind the last
row. In a micro-batch it goes on from what the last one has left, and what there is behind it is
reported, to be committed with the rest. There timers fire before the first row and behind the last.
"""

from __future__ import annotations

import msgspec

from onyx.flow.batch import Batch
from onyx.program.phases import Phase
from onyx.spark.driver.request import BucketState
from onyx.spark_query.arrivals import Arrivals, before, origins
from onyx.spark_query.fold import Fold
from onyx.spark_query.folding.contents import Contents
from onyx.spark_query.folding.kept_states import KeptStates
from onyx.spark_query.micro_batches import Reached
from onyx.spark_query.programs import Query
from onyx.spark_query.readings import Report, heard, new_reading
from onyx.spark_query.rows import ENDINGS, Ending, Row, report, segments_of, states_of
from onyx.spark_query.tree import Tree


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
        self._state = BucketState(task, bucket)
        self.reading = new_reading()
        self._heard = 0
        if reached is None:
            self.arrivals = Arrivals(origins(query, task))
        else:
            mine = [each for each in reached.states if (each.task, each.bucket) == (task, bucket)]
            self._state = mine[0] if mine else self._state
            self.arrivals = Arrivals(origins(query, task), before(query, reached, self._state))
        self.fold: Fold | None = None
        program = tree.program(task)
        if program.operator is None or self._state.over:
            return
        if reached is not None:
            try:
                self._kept = KeptStates(query)
                self._contents = self._kept.load(program, self._state)
            except Exception as error:
                raise self._failure(error) from error
        else:
            self._contents = Contents.empty(program, bucket, query.config.buckets)
            self._contents.restore({})
        self.fold = Fold(tree, program, self._contents)

    @property
    def mark(self) -> int | None:
        """Event time of what the bucket sends on: of a join it is behind its own."""
        mark = self.arrivals.mark
        return mark if mark is None or self.fold is None else self.fold.operator.passed_on(mark)

    def begin(self) -> None:
        """Timers fire that were due before the micro-batch."""
        if self.fold is not None and self._reached is not None:
            self.fold.tick()

    def take(self, row: Row) -> None:
        """Work on a row."""
        fold, segments = self.fold, segments_of(row)
        if row.kind == "states" and fold is not None:
            fold.merge(states_of(row))
        elif fold is not None and (len(segments) or row.upstream):
            fold.add(segments, row.upstream)
        elif len(segments):
            self._tree.push(self._task, Batch(segments))
        if row.kind in ENDINGS:
            self._heard = heard(self._heard, row)
        risen = self.arrivals.hear(row)
        if fold is not None and risen and self.arrivals.mark is not None:
            fold.advance(self.arrivals.mark)

    def end(self) -> list[Row]:
        """All rows have come; what there is to report.

        Raises:
            TaskFailed: its state cannot be written.
        """
        over = self._reached is None or self.arrivals.over
        if self.fold is not None and over:
            self.fold.end(self.arrivals.newest_ms)
        elif self.fold is not None:
            self.fold.tick()
        if self._reached is None:
            return []
        number = self._reached.batches + 1
        try:
            said = Report(self._held(number, over), self._heard)
        except Exception as error:
            raise self._failure(error) from error
        task, origin = self._state.task, f"{self._state.task}:{self._state.bucket}"
        return [report("held", task, said, origin, number, self.reading)]

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
        held = msgspec.structs.replace(held, files=files, due_ms=fold.operator.next_tick_ms)
        self._kept.remember(held, self._contents)
        return held

    def _failure(self, error: Exception) -> Exception:
        return self._tree.failure(self._task, Phase.ASSIGN_WINDOWS.value, error)
