"""What comes to a Spark stage in the middle, as Parquet parts: in one task of Spark.

They lie below the `path` of the task, in a folder of the worker and of the run
(`spark.driver.leftovers`). Parts are named by the task of Spark that writes them, and only the rows
that Spark takes from a task that succeeded name them. So a task that Spark runs twice gives its
segments once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import msgspec

from onyx.base.structs import prepared
from onyx.flow.batch import Segments, format_of
from onyx.plugins.parts.writer import ColumnsBody, ColumnsFormat
from onyx.spark.middle.request import location_of_task
from onyx.spark_query.programs import Query
from onyx.storage.interface import Location

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
