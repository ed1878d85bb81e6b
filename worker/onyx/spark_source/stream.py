"""`readStream`: follows the parts of an output.

The driver lists parts and plans; it reads no rows. (With a limit of rows it counts them: by the
footers of Parquet files, by reading JSON lines through, each part once.) A batch is known by its
offsets alone, so Spark may repeat it, in another process too, and gets the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from onyx.errors import UserError
from onyx.plugins.parts import offsets
from onyx.plugins.parts.folders import NotThere
from onyx.plugins.parts.offsets import Limit, Offset, Part
from onyx.spark_source.lookups import found
from onyx.spark_source.options import SourceOptions, in_one_line, read_options, require_text
from onyx.spark_source.outputs import OutputFiles, published
from onyx.spark_source.rows import batches, count

COUNTED_MAX = 10_000
"""Parts whose numbers of rows are remembered."""


class OutputStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream of the rows of an output.

    It is made of options that nobody has looked at. PySpark hides what is raised while it makes a
    stream behind an error of its own; what a method of it raises, it shows.
    """

    def __init__(self, given: Mapping[str, str], schema: Any) -> None:
        """`given`: the options as Spark hands them over."""
        self._given = dict(given)
        self._schema = schema
        self._counted: dict[str, int] = {}
        self._until: list[Part] | None = None
        """Parts beyond which `availableNow` does not go."""

    @cached_property
    def _options(self) -> SourceOptions:
        return read_options(self._given)

    @cached_property
    def _output(self) -> OutputFiles:
        """Raises UserError: there is none, or none that can be followed."""
        options = self._options
        if options.window is not None:
            raise UserError("the state of a window is read at one moment: use spark.read")
        require_text(self._schema, options)
        output = found(options).output
        if output.content == "result":
            raise UserError(
                f"{output.name}: a result is made once, at the end of a job: use spark.read, or "
                'follow the parts with option("content", "parts")'
            )
        return output

    @in_one_line()
    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say."""
        options = self._options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_files_per_trigger is not None:
            return ReadMaxFiles(options.max_files_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @in_one_line()
    def initialOffset(self) -> dict[str, Any]:
        """Before the first part, or behind those that are there."""
        _ = self._output  # which is looked for now, whatever the offset is
        if self._options.starting_from == "earliest":
            return {}
        return offsets.to_json(offsets.end({}, self._parts({})))

    @in_one_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch.

        Raises:
            UserError: the checkpoint is another source's, or the folder is gone, or a part in it.
        """
        at = offsets.from_json(start)
        parts = self._parts(at)
        for part in offsets.gaps(at, parts):
            raise UserError(
                f"{self._output.name}: part {part.path} is gone, which was published before others "
                'that are there: put it back, or begin a new query with option("startingFrom", '
                '"latest")'
            )
        return offsets.to_json(offsets.advanced(at, parts, _limit(limit), self._rows_of))

    @in_one_line()
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Behind all that is published, for the progress of a query."""
        return offsets.to_json(offsets.end({}, self._parts({})))

    @in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:
        """Go no further than what is published now."""
        self._until = self._parts({})

    @in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The parts of a batch, a partition each.

        Raises:
            UserError: some are gone.
        """
        to = offsets.from_json(end)
        if not to:
            return []
        rows = offsets.between(offsets.from_json(start), to, published(self._output))
        return [InputPartition(each) for each in rows]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        text = self._options.form == "text"
        with in_one_line():
            yield from batches(partition.value, arrow_of(self._schema), text)

    def _parts(self, start: Offset) -> list[Part]:
        output = self._output
        try:
            parts = offsets.settled(published(output), published(output))
        except NotThere:
            if start:
                raise
            return []  # an output makes its folder with its first part
        return parts if self._until is None else offsets.settled(self._until, parts)

    def _rows_of(self, part: Part) -> int:
        if part.path not in self._counted:
            if len(self._counted) >= COUNTED_MAX:
                self._counted.clear()
            self._counted[part.path] = count(part.path)
        return self._counted[part.path]


def _limit(limit: ReadLimit) -> Limit:
    if isinstance(limit, ReadMaxRows):
        return Limit(rows=limit.max_rows)
    if isinstance(limit, ReadMaxFiles):
        return Limit(parts=limit.max_files)
    if isinstance(limit, ReadMaxBytes):
        return Limit(size_bytes=limit.max_bytes)
    return Limit()


def arrow_of(schema: Any) -> pa.Schema:
    """A schema of Spark in the types that it wants batches in."""
    return to_arrow_schema(schema, timezone="UTC")
