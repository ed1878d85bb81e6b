"""A query over inputs without end: one streaming query of Spark, each micro-batch by the chain of
stages of a batch query.

What a micro-batch has staged is handed to the worker, and Spark commits the batch when the worker
has committed and published it. So whatever Spark repeats is either committed, and then its source
asks for nothing, or nobody has seen anything of it. What counts is what the worker has committed:
Spark's checkpoint lies in the scratch folder, and a new query begins behind the last commit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.errors import Unavailable
from onyx.spark.query.chain import chain, outputs_of, streamed_places, total_of
from onyx.spark.query.failure import is_disordered
from onyx.spark.query.micro_batches import Reached, due_ms, write_reached
from onyx.spark.query.programs import Query, StageConfig
from onyx.spark.query.readings import states_of_places
from onyx.spark.query.request import (
    Held,
    Position,
    QueryBatch,
    QueryProgress,
    QueryRequest,
    TaskCounts,
)
from onyx.spark.query.rows import Row
from onyx.spark.query.tree import total

TRIGGER = "500 milliseconds"
"""How often the source is asked whether there is something to read."""
LOOK_S = 5.0
"""How often a query that waits says so."""

Publish = Callable[[QueryBatch], None]
"""Returns when the batch is committed and published; raises Unavailable if it will not be."""


class Stream:
    """One streaming query."""

    def __init__(
        self, query: Query, partitions: tuple[tuple[str, str], ...], publish: Publish
    ) -> None:
        """`query`: its config holds the request."""
        self._query = query
        self._request: QueryRequest = query.config.request
        known = {(each.task, each.name): each for each in self._request.positions}
        self._away = tuple(each for key, each in known.items() if key not in partitions)
        """Of partitions that are not there now. They go on from here when they come back."""
        now_ms = query.clock.wall_ms()
        self._positions = [
            known.get(each) or Position(*each, seen_ms=now_ms) for each in partitions
        ]
        self._states = {(each.task, each.place): each for each in self._request.held.states}
        self._ends = bool(self._request.draining and partitions)
        if self._ends:
            self._positions = [replace(each, exhausted=True) for each in self._positions]
        self._batches = self._request.batches
        self._publish = publish
        self._path = Path(self._request.scratch) / "reached.json"
        self._over = Event()
        self.counts: dict[str, TaskCounts] = {}
        self.error: Exception | None = None
        """What a micro-batch has failed with."""
        self._keep()

    def run(self, spark: Any, say: Callable[[QueryProgress], None], ui_url: str | None) -> None:
        """Run until the inputs have come to their ends.

        Raises:
            Exception: of Spark, or `error`.
        """
        from onyx.spark.query.streaming_source import MicroBatchSource  # with PySpark, so late

        if self._all_read() and not self._ends:
            return
        self._config = msgspec.json.encode(self._query.config).decode()
        spark.dataSource.register(MicroBatchSource)
        frame = spark.readStream.format(MicroBatchSource.name())
        frame = frame.option("config", self._config).option("reached", str(self._path)).load()
        folder = str(Path(self._request.scratch) / "checkpoint")
        writer = frame.writeStream.foreachBatch(self._process).trigger(processingTime=TRIGGER)
        running = writer.option("checkpointLocation", folder).start()
        waited = 0
        while not running.awaitTermination(LOOK_S if not self._over.is_set() else 0.1):
            if self._over.is_set():
                running.stop()
                return
            waited += not running.status["isTriggerActive"]
            say(QueryProgress("running", self.counts, self._batches, waited, ui_url))

    def _process(self, frame: Any, batch_id: int) -> None:
        """One micro-batch of Spark."""
        try:
            self._take(self._rows(frame))
        except Exception as error:
            self.error = error
            raise
        if self._all_read():
            self._over.set()

    def _rows(self, frame: Any) -> list[Row]:
        """What the stages report. If a segment stands against folding before the shuffle, they run
        again without it, and so does every later micro-batch of this query."""
        config, before = self._query.config, msgspec.json.encode(self._reached).decode()
        stages = len(self._query.plan.stages)
        try:
            return chain(frame, self._config, config.places, stages, before)
        except Exception as error:
            if not is_disordered(error):
                raise
        anew = replace(config, request=replace(config.request, combine=False))
        self._config = msgspec.json.encode(anew).decode()
        return chain(frame, self._config, config.places, stages, before)

    def _take(self, rows: list[Row]) -> None:
        """Hand over what a micro-batch has staged; nothing if it was committed before."""
        reached = {_number_of(row): row for row in rows if row.kind == "position"}
        if not reached:
            return
        numbers = {row.seq for row in reached.values()}
        if numbers != {self._batches + 1}:
            raise Unavailable(f"batch {numbers} after {self._batches}: a source that is behind")
        for state in states_of_places(self._query, rows, self._batches + 1):
            self._states[state.task, state.place] = state
        for number, row in reached.items():
            self._positions[number] = msgspec.json.decode(row.payload, type=Position)
        self.counts = total([self.counts, total_of(rows)])
        outputs, positions = outputs_of(self._query, rows), (*self._positions, *self._away)
        held = Held(self._query.config.places, tuple(self._states.values()))
        self._publish(QueryBatch(self._batches + 1, outputs, self.counts, positions, held))
        self._batches, self._ends = self._batches + 1, False
        self._keep()

    def _keep(self) -> None:
        positions, states = tuple(self._positions), tuple(self._states.values())
        due = due_ms(self._query, positions, states)
        self._reached = Reached(self._batches, positions, states, due, self._ends)
        write_reached(self._path, self._reached)

    def _all_read(self) -> bool:
        return all(each.exhausted for each in self._positions)


def _number_of(row: Row) -> int:
    """Of the partition that a row is about."""
    return int(row.origin.rpartition(":")[2])


def streaming(
    spark: Any,
    request: QueryRequest,
    partitions: tuple[tuple[str, str], ...],
    publish: Publish,
    say: Callable[[QueryProgress], None],
    ui_url: str | None,
) -> dict[str, TaskCounts]:
    """Run a query over inputs without end; its counts, when all have ended after all.

    Raises:
        Exception: as `Stream.run`.
    """
    places = request.held.places or streamed_places(spark, request)
    query = Query(StageConfig(request, partitions, places))
    stream = Stream(query, partitions, publish)
    try:
        stream.run(spark, say, ui_url)
    except Exception as error:
        raise stream.error or error from error
    return stream.counts
