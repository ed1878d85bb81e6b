"""What reads a batch for Spark: one partition a file, or the state of a window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from onyx.plugins.parts.offsets import Rows
from onyx.spark_source.errors import in_one_line
from onyx.spark_source.listing import OutputFiles, published
from onyx.spark_source.lookups import state
from onyx.spark_source.options import SourceOptions
from onyx.spark_source.rows import batches
from onyx.spark_source.stream import arrow_of


class OutputReader(DataSourceReader):  # type: ignore[misc]
    """Reads the parts of an output, or the files of a result: a partition each."""

    def __init__(self, output: OutputFiles, schema: Any, text: bool) -> None:
        self._output = output
        self._schema = schema
        self._text = text

    @in_one_line()
    def partitions(self) -> list[InputPartition]:
        """A partition for each file."""
        return [InputPartition(Rows(part.path)) for part in published(self._output)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a file; Spark asks with None when there are no partitions."""
        if partition.value is not None:
            with in_one_line():
                yield from batches(partition.value, arrow_of(self._schema), self._text)


class StateReader(DataSourceReader):  # type: ignore[misc]
    """Reads the state of a window: one partition, asked where Spark executes it."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The extents as of now."""
        with in_one_line():
            yield state(self._options, arrow_of(self._schema))
