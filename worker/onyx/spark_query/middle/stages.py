"""Spark stages of the user in the middle of a query: what the driver does between two parts of it.

A stage needs all that comes to it, and its DataFrames need columns, which only the data show. So
the query is cut there. The part before ends in files: segments for the stage as Parquet parts, and
rows for later fragments of the plan as they are. Then the stage runs, in the Spark of the query,
beside the query's own session, and its result is Parquet
too. Everything that the next part reads is therefore fixed, and Spark may run any of its tasks
again, although a stage need not give the same twice. Rejected: the stage as a lazy frame of the
same query, which Spark would compute anew for each task that it repeats.

The files lie in the `path` of the task, a folder that Spark's processes share or an object store,
and go with the query.

**Parts.** What comes to a stage lies below the `path` of the task, in a folder of the worker and of
the run (`spark.driver.driver`). Parts are named by the task of Spark that writes them, and only the
rows that Spark takes from a task that succeeded name them. So a task that Spark runs twice gives
its segments once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from onyx.base.structs import prepared
from onyx.errors import FailsAgain, UserFunctionError
from onyx.flow.batch import Segments, format_of
from onyx.plugins.parts.writer import ColumnsBody, ColumnsFormat
from onyx.spark.child.request import EXACT_TYPES, StageRequest
from onyx.spark.child.run_stage import Turn, run
from onyx.spark.compiler.plan import Middle
from onyx.spark.driver.request import QueryRequest
from onyx.spark.middle.request import filled, location_of_task, options_of, request_of
from onyx.spark.session.kept import sessions_beside
from onyx.spark.session.masters import OF_SESSIONS
from onyx.spark.target import target_in
from onyx.spark_query.programs import Query
from onyx.spark_query.rows import Row
from onyx.storage.interface import Location

PAUSE_S = 2.0
"""Before a stage that failed is run again."""
ROWS_OF_SPARK = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10000"}
"""Spark's own: rows of a stage are rows, not batches of segments."""
RunStage = Callable[[StageRequest], None]


class MiddleStages:
    """The Spark stages of one query. Used by the driver."""

    def __init__(
        self, query: Query, run_stage: RunStage, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """`run_stage`: has a stage write its result. Raises like `run_stage.run`."""
        self._query = query
        self._run_stage = run_stage
        self._pause = pause

    def begin(self) -> None:
        """Check what the job says of the stages, and make their folders.

        Raises:
            UserError: a stage does not exist, or cannot be called with what comes to it.
        """
        query = self._query
        for middle in query.plan.middles:
            request_of(
                query.plugins.context(middle.task), options_of(query.plugins.context(middle.task))
            )
            # This run may have begun before, and found that windows cannot be combined.
            remove_run(query, middle.task)
            parts_of(query, middle.task).make()

    def rows_folder(self, fragment: int) -> Location:
        """For the rows that are there when a fragment of the plan begins, behind a Spark stage."""
        middle = next(each for each in self._query.plan.middles if each.fragment == fragment)
        return folder_in(self._query, middle.task) / "rows"

    def results(self, fragment: int, reported: Iterable[Row]) -> list[Row]:
        """Run the Spark stages whose rows begin a fragment of the plan; rows that name their files.

        Args:
            reported: by all fragments of the plan before it.

        Raises:
            TaskFailed: a stage has failed too often.
            OnyxError: Spark has failed.
        """
        rows, found = list(reported), list[Row]()
        for middle in self._query.plan.middles:
            if middle.fragment == fragment:
                parts = [
                    msgspec.json.decode(row.payload, type=FramePart)
                    for row in rows
                    if row.kind == "part" and row.task == middle.task
                ]
                found += self._result(middle, parts)
        return found

    def _result(self, middle: Middle, parts: Sequence[FramePart]) -> list[Row]:
        if not parts:
            return []
        task, buckets = middle.task, self._query.config.buckets
        try:
            files = self._run(middle, parts)
        except UserFunctionError as error:
            raise self._query.failure(task, "spark-stage", error) from error
        return [
            Row(middle.fragment, task, n % buckets, n, task, "result", None, file.encode())
            for n, file in enumerate(files)
        ]

    def _run(self, middle: Middle, parts: Sequence[FramePart]) -> list[str]:
        """The files of the result."""
        query = self._query
        context = query.plugins.context(middle.task)
        options = options_of(context)
        asked = request_of(context, options)
        paths = {
            task: tuple(sorted(each.path for each in parts if each.upstream == task))
            for task in middle.upstream
        }
        asked = msgspec.structs.replace(
            asked,
            frames=filled(asked.frames, paths, "the input"),
            master=query.request.master,
            spark_conf={},
            session_conf=session_settings(query.request, options.spark_conf),
        )
        most = query.request.stage_attempts_max
        for attempt in range(1, most + 1):
            folder = folder_in(query, middle.task)
            try:
                with target_in(folder, f"result-{attempt}") as target:
                    self._run_stage(target.asked(asked))
                    files = target.settle(asked.master, durable=False)
                return [folder.path_of(name) for name, _ in files]
            except FailsAgain as error:
                raise FailsAgain(f"stage {middle.function} failed with: {error}") from error
            except UserFunctionError as error:
                if attempt == most:
                    what = f"stage {middle.function} failed {most} times, last with: {error}"
                    raise UserFunctionError(what) from error
                self._pause(PAUSE_S)
        raise AssertionError("an attempt at least")


def run_beside(spark: Any, request: QueryRequest, asked: StageRequest) -> None:
    """Run a stage in the Spark of a query, in a session of its own. Raises like `run_stage.run`."""
    scratch = Path(request.scratch)
    with sessions_beside(spark, request.master, scratch, request.spark_conf) as sessions:
        run(asked, Turn(sessions, asked.name, scratch))


def session_settings(request: QueryRequest, own: Mapping[str, str]) -> dict[str, str]:
    """What is set in the session of a stage.

    Args:
        own: `sparkConf` of the task.
    """
    given = {**request.spark_conf, **own}
    settable = {key: value for key, value in given.items() if key.startswith(OF_SESSIONS)}
    return {**EXACT_TYPES, **ROWS_OF_SPARK, **settable}


PART_BYTES_MAX = 134_217_728
PART_SEGMENTS_MAX = 1_000_000
"""A part is kept in memory until it ends, for its columns are known only then."""


@prepared
class FramePart(msgspec.Struct, frozen=True):
    """A file with segments of one task upstream."""

    upstream: str
    path: str


class FrameParts:
    """The parts of one task with a stage."""

    def __init__(self, folder: Location, writer: str, form: ColumnsFormat) -> None:
        """`writer`: what no other task of Spark is named."""
        self._folder = folder
        self._writer = writer
        self._form = form
        self._open: dict[str, _Part] = {}
        self._written: list[FramePart] = []

    def write(self, upstream: str, segments: Segments) -> None:
        """Add segments of a task upstream. Raises UserError if they are no columns."""
        part = self._open.get(upstream)
        if part is None:
            name = f"{upstream}.{self._writer}{len(self._written)}-{len(self._open)}.parquet"
            part = self._open[upstream] = _Part(self._folder, name, self._form.begin)
        part.add(segments)
        if part.is_full:
            self._end(upstream)

    def finish(self) -> list[FramePart]:
        """End all parts; what was written."""
        for upstream in list(self._open):
            self._end(upstream)
        return self._written

    def _end(self, upstream: str) -> None:
        part = self._open.pop(upstream)
        part.end()
        self._written.append(FramePart(upstream, self._folder.path_of(part.name)))


class _Part:
    def __init__(
        self, folder: Location, name: str, begin: Callable[[BinaryIO], ColumnsBody]
    ) -> None:
        self.name = name
        self._file = folder.new_file(name, durable=False)  # it goes with the query
        self._body = begin(self._file.file)
        self._segments = 0

    @property
    def is_full(self) -> bool:
        return self._segments >= PART_SEGMENTS_MAX or self._body.size_bytes() >= PART_BYTES_MAX

    def add(self, segments: Segments) -> None:
        self._segments += len(segments)
        format_of(segments).choose(self._body.add, self._body.add_columns)(segments)

    def end(self) -> None:
        self._body.finish()
        self._file.publish()


def folder_in(query: Query, task: str) -> Location:
    """The folder of a task with a Spark stage, in this run."""
    return location_of_task(query.plugins.context(task)) / _run(query)


def remove_run(query: Query, task: str) -> None:
    """Remove the folder of a task with all that is in it. Raises UserError, Unavailable."""
    location_of_task(query.plugins.context(task)).remove_tree(_run(query))


def parts_of(query: Query, task: str) -> Location:
    """Where what comes to the stage is written."""
    return folder_in(query, task) / "parts"


def _run(query: Query) -> str:
    return f"{query.request.incarnation}/{query.request.attempt}"
