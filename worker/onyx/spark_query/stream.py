"""A query over inputs without end: micro-batches, each of them a query by the chain of fragments of
a batch query.

What a micro-batch has staged is handed to the worker, and the next one begins when the worker has
committed and published it. So whatever Spark repeats has been seen by nobody. What counts is what
the worker has committed; a new query begins behind that.

The loop is ours, and Spark knows nothing of a stream. Structured Streaming was rejected: its
`foreachBatch` runs beside the JVM, which with a Connect server is not here, and all that it adds is
a checkpoint that does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.errors import UserError
from onyx.model.workflow import stateful_tasks
from onyx.plugins.starting import first_cursor
from onyx.spark.compiler.compile import all_above
from onyx.spark.driver.committed import has_ended
from onyx.spark.driver.request import (
    BucketState,
    Held,
    Position,
    QueryBatch,
    QueryProgress,
    QueryRequest,
    TaskCounts,
)
from onyx.spark_query.arrivals import ReadAgain, states_of_buckets
from onyx.spark_query.chain import (
    buckets_of,
    chain,
    numbers_of,
    outputs_of,
    total_of,
    touch,
)
from onyx.spark_query.counting import total
from onyx.spark_query.failure import is_disordered
from onyx.spark_query.micro_batches import News, Reached, due_ms
from onyx.spark_query.programs import Query, QueryConfig
from onyx.spark_query.rows import Row

PERIOD_S = 0.5
"""Between the beginnings of two micro-batches at least, and between two looks at the inputs."""
LOOK_S = 5.0
"""How often a query that waits says so, and lets Spark know that it is there: a Connect server
forgets a session that nobody uses."""
READINGS_MAX = 4
"""How often a micro-batch is run whose inputs Spark has read again in the middle."""

Publish = Callable[[QueryBatch], None]
"""Returns when the batch is committed and published; raises Unavailable if it will not be."""
Say = Callable[[QueryProgress], None]
Rest = Callable[[float], None]
"""Waits so many seconds."""


class Stream:
    """One query: what it has committed, and what comes next."""

    def __init__(
        self, query: Query, partitions: tuple[tuple[str, str], ...], publish: Publish
    ) -> None:
        """`query`: its config holds the request."""
        self._query = query
        self._request: QueryRequest = query.config.request
        known = {(each.task, each.name): each for each in self._request.positions}
        self._away = tuple(each for key, each in known.items() if key not in partitions)
        """The state of partitions that are not there now. They go on from here when they come
        back."""
        now_ms = query.clock.wall_ms()
        self._positions = [known.get(each) or _first(query, *each, now_ms) for each in partitions]
        self._states = {(each.task, each.bucket): each for each in self._request.held.states}
        ends = bool(self._request.draining and partitions)
        if ends:
            self._positions = [replace(each, exhausted=True) for each in self._positions]
        self._check_ended()
        self._publish = publish
        self._config = query.config.text()
        self._news = News(query)
        self.counts: dict[str, TaskCounts] = {}
        self.reached = self._reached(self._request.batches, ends)

    def _check_ended(self) -> None:
        """Raises UserError when something comes for a task that has nothing any more."""
        unread = {each.task for each in self._positions if not each.exhausted}
        ended, job = {each.task for each in self._states.values() if each.over}, self._query.job
        for task in sorted(ended & stateful_tasks(job)):
            if unread & all_above(job, task):
                raise UserError(has_ended(task))

    @property
    def is_over(self) -> bool:
        """Whether all inputs have come to their ends."""
        return not self.reached.ends and all(each.exhausted for each in self._positions)

    def advance(self, spark: Any, begins: Callable[[int], None]) -> bool:
        """Run a micro-batch if there is something for it, until it is published.

        Args:
            begins: gets the number of one that is about to be read.

        Raises:
            Exception: of Spark, or as `publish`.
        """
        if not self._news.begins(self.reached):
            return False
        begins(self.reached.batches + 1)
        self._take(*self._of_one_reading(spark))
        return True

    def close(self) -> None:
        """Let go of the inputs."""
        self._news.close()

    def _of_one_reading(self, spark: Any) -> tuple[list[Row], list[BucketState]]:
        """What the fragments report, and the buckets among them."""
        number, again = self.reached.batches + 1, READINGS_MAX - 1
        while True:
            rows = self._rows(spark)
            try:
                return rows, states_of_buckets(self._query, rows, number)
            except ReadAgain:
                if not again:
                    raise
                again -= 1

    def _rows(self, spark: Any) -> list[Row]:
        """What the fragments report. If a segment stands against folding before the shuffle, they
        run again without it, and so does every later micro-batch of this query."""
        config, before = self._query.config, msgspec.json.encode(self.reached).decode()
        fragments, frame = len(self._query.plan.fragments), numbers_of(spark, len(self._positions))
        try:
            return chain(frame, self._config, config.buckets, fragments, before)
        except Exception as error:
            if not is_disordered(error):
                raise
        anew = replace(config, request=replace(config.request, combine=False))
        self._config = anew.text()
        return chain(frame, self._config, config.buckets, fragments, before)

    def _take(self, rows: list[Row], states: list[BucketState]) -> None:
        """Hand over what a micro-batch has staged."""
        number = self.reached.batches + 1
        for state in states:
            self._states[state.task, state.bucket] = state
        for row in rows:
            if row.kind == "position":
                self._positions[_number_of(row)] = msgspec.json.decode(row.payload, type=Position)
        self.counts = total([self.counts, total_of(rows)])
        outputs, positions = outputs_of(self._query, rows), (*self._positions, *self._away)
        held = Held(self._query.config.buckets, tuple(self._states.values()))
        self._publish(QueryBatch(number, outputs, self.counts, positions, held))
        self.reached = self._reached(number, ends=False)

    def _reached(self, batches: int, ends: bool) -> Reached:
        positions, states = tuple(self._positions), tuple(self._states.values())
        due = due_ms(self._query, positions, states)
        return Reached(batches, positions, states, due, ends)


def _first(query: Query, task: str, name: str, now_ms: int) -> Position:
    """Where a partition begins that no micro-batch has read."""
    cursor = first_cursor(query.plugins.kept_input(task), name)
    if cursor is None:
        return Position(task, name, exhausted=True, seen_ms=now_ms)
    at, state = cursor.position, cursor.state
    return Position(task, name, position=at, cursor=at, state=state, seen_ms=now_ms)


def _number_of(row: Row) -> int:
    """The number of the partition that a row is about."""
    return int(row.origin.rpartition(":")[2])


def streaming(
    spark: Any,
    request: QueryRequest,
    partitions: tuple[tuple[str, str], ...],
    publish: Publish,
    say: Say,
    ui_url: str | None,
    rest: Rest,
) -> dict[str, TaskCounts]:
    """Run a query over inputs without end; its counts, when all have ended after all.

    Raises:
        Exception: as `Stream.advance`.
    """
    buckets = request.held.buckets or buckets_of(spark, request)
    stream = Stream(Query(QueryConfig(request, partitions, buckets)), partitions, publish)
    waited, said_s = 0, time.monotonic()

    def report(begun: int = 0) -> None:
        say(QueryProgress("running", stream.counts, stream.reached.batches, begun, waited, ui_url))

    try:
        while not stream.is_over:
            begun_s = time.monotonic()
            advanced = stream.advance(spark, report)
            if not advanced and begun_s - said_s >= LOOK_S:
                touch(spark)
                waited += 1
            if advanced or begun_s - said_s >= LOOK_S:
                said_s = begun_s
                report()
            rest(max(0.0, begun_s + PERIOD_S - time.monotonic()))
    finally:
        stream.close()
    return stream.counts
