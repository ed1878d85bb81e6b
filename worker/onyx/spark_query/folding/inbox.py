"""The inbox of a task in one bucket: an operator may leave segments in it, and gets them again.

It gets them when it has taken or made something else, when event time or an end has come, at the
beginning and the end of a micro-batch, and with more of the same edge. Nobody who sends can be held
back behind a shuffle, so what waits is bounded, and the job fails beyond that.

When nothing more comes, all has to be taken. An operator that waits for time to pass gets its
time; one that waits for ever is found.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from onyx.base.seams import Clock
from onyx.errors import UserError
from onyx.flow.batch import Indices, Segments, joined
from onyx.ids import TaskName
from onyx.program.operator import Operator
from onyx.spark_query.folding.left import Left, Waiting
from onyx.spark_query.rows import Row
from onyx.windows.watermarks import Mark

LEFT_BYTES_MAX = 268_435_456
"""What waits in one bucket is smaller, as rows."""
GIVEN_MAX = 8_192
"""An operator gets about so many segments at once of an edge that waits, as on a peer."""
RESTS = 9
"""An edge rests for so many times as long as it took to find that nothing of it is taken."""
TRIED_EVERY_S = 0.1
"""When nothing more comes, what waits is given again as often."""
TRIED_EVERY_MS = 5_000
"""So long after a micro-batch in which something has waited another one begins, though nothing has
come."""
WAITS_S = 600.0
"""When nothing more comes, an operator that takes nothing for so long waits for ever."""


class Keeping(Protocol):
    """The state of the bucket (`spark_query.fold.Fold`)."""

    operator: Operator
    clock: Clock

    def add(self, segments: Segments, upstream: str) -> Indices:
        """Give segments to the operator; the indices of those that it leaves."""
        ...

    def tick(self) -> None:
        """Let it do what is due."""
        ...


class Inbox:
    """What has come to a bucket, until its operator takes it."""

    def __init__(
        self,
        fold: Keeping,
        left: Left,
        said: Callable[[str], Mark],
        hear: Callable[[Row], None],
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        """
        Args:
            left: what waits already.
            said: gives the watermark of an origin.
            hear: takes a row before which all was taken: event time, and ends.
        """
        self._fold = fold
        self._left = left
        self._said = said
        self._hear = hear
        self._sleep = sleep
        self._done = 0
        """Segments that were taken, and rows that were heard."""
        self._tried: dict[str, tuple[int, float]] = {}
        """By edge of which nothing was taken: how much had been done then, and until when it
        rests."""

    def take(self, row: Row, segments: Segments) -> None:
        """A row has come. Raises UserError: too much waits."""
        added = self._left.add(row, segments, self._said(row.origin))
        if len(segments) and not self._rests(row.upstream):
            self._give(row.upstream)
        self._hear_from(row.origin)
        self._settle(lambda edge: self._left.edges[edge] and self._may_be_due(edge))
        added.forget()
        if self._left.size_bytes > LEFT_BYTES_MAX:
            raise UserError(
                f"{self._why()}; on Spark at most {LEFT_BYTES_MAX >> 20} MiB wait in each share of "
                "the groups, because those who send cannot be held back: take what comes and keep "
                "it in the state, or run the job on peers"
            )

    def settle(self) -> None:
        """Between two micro-batches: the operator gets what waits."""
        self._tried.clear()
        self._settle(lambda edge: bool(self._left.edges[edge]))

    def due_ms(self, due_ms: int | None) -> int | None:
        """When the next micro-batch begins although nothing has come; `due_ms`: when it does in any
        case."""
        if not self._left.origins:
            return due_ms
        tried_ms = self._fold.clock.wall_ms() + TRIED_EVERY_MS
        return tried_ms if due_ms is None else min(due_ms, tried_ms)

    def finish(self, note_ends: Callable[[], None]) -> None:
        """Nothing more comes: all is taken. Raises UserError: it is not.

        Args:
            note_ends: notes what has ended as far as nothing of it is left.
        """
        clock, done, until_s = self._fold.clock, -1, 0.0
        while True:
            note_ends()
            self._fold.tick()
            self.settle()
            if not self._left.origins:
                return
            if self._done != done:
                done, until_s = self._done, clock.monotonic_s() + WAITS_S
            elif clock.monotonic_s() >= until_s:
                raise UserError(self._why())
            else:
                self._sleep(TRIED_EVERY_S)

    def _settle(self, fits: Callable[[str], object]) -> None:
        """Give what waits of edges, as long as something of it is taken."""
        done = -1
        while done != self._done:
            done = self._done
            for edge in [each for each in self._left.edges if fits(each)]:
                self._give(edge)
            for origin in list(self._left.origins):
                self._hear_from(origin)

    def _rests(self, edge: str) -> bool:
        tried = self._tried.get(edge)
        return tried is not None and self._fold.clock.monotonic_s() < tried[1]

    def _may_be_due(self, edge: str) -> bool:
        """Whether something was done since nothing of the edge was taken."""
        tried = self._tried.get(edge)
        return tried is None or (tried[0] != self._fold.operator.moves and not self._rests(edge))

    def _give(self, edge: str) -> None:
        """Give what waits of an edge, until the operator leaves some."""
        clock, operator = self._fold.clock, self._fold.operator
        while rows := self._left.first(edge, GIVEN_MAX):
            begun_s = clock.monotonic_s()
            rows, segments = _together(rows)
            left = self._fold.add(segments, edge)
            self._left.keep(edge, rows, left)
            self._done += len(segments) - len(left)
            if len(left) == len(segments):
                now_s = clock.monotonic_s()
                self._tried[edge] = operator.moves, now_s + RESTS * (now_s - begun_s)
                return
        self._tried.pop(edge, None)

    def _hear_from(self, origin: str) -> None:
        for row in self._left.take_heard(origin):
            self._done += 1
            self._hear(row)

    def _why(self) -> str:
        counts = {TaskName(edge): count for edge, count in self._left.counts.items()}
        return self._fold.operator.why_left(counts)


def _together(rows: list[Waiting]) -> tuple[list[Waiting], Segments]:
    """Rows and their segments; the first row alone, if columns of others do not go with it."""
    try:
        return rows, joined([each.segments for each in rows])
    except UserError:
        return rows[:1], rows[0].segments
