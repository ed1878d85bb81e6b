"""The data source itself, and what reads a batch for Spark: what PySpark calls.

PySpark makes it anew, or sends it on, in several processes: to find the schema, to plan, to read.
So it holds nothing but the options, and each process looks for the output itself. Only names of
classes of this package and plain values are in what Spark pickles.

Rejected: `pushFilters`, which PySpark refuses on a session that has not enabled it; columns are
left out by giving a schema with fewer of them. Also the simple stream reader: it reads on the
driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from onyx.errors import UserError
from onyx.plugins.files.spark_footer import unreadable
from onyx.plugins.parts.offsets import Rows
from onyx.spark.types import spark_schema
from onyx.spark_source import schemas
from onyx.spark_source.lookups import found, state, state_schema, target_of
from onyx.spark_source.options import (
    SourceOptions,
    in_one_line,
    read_options,
    require_text,
    write_options,
)
from onyx.spark_source.outputs import OutputFiles, published
from onyx.spark_source.rows import TEXT, batches
from onyx.spark_source.stream import OutputStream, arrow_of
from onyx.spark_source.writers import JobStreamWriter, JobWriter


class OnyxDataSource(DataSource):  # type: ignore[misc]
    """`format("onyx")`: register it with `spark.dataSource.register(OnyxDataSource)`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "onyx"

    @property
    def _options(self) -> SourceOptions:
        """Looked at only by readers: PySpark does not say before what it is about to do."""
        return read_options(self.options)

    @in_one_line()
    def schema(self) -> Any:
        """The columns, when the user has given none."""
        if self._options.window is not None:
            return from_arrow_schema(state_schema(self._options))
        if self._options.form == "text":
            return from_arrow_schema(TEXT)
        named = found(self._options)
        columns = named.schema or schemas.found_in(published(named.output), named.output.name)
        return from_arrow_schema(spark_schema(columns))

    @in_one_line()
    def reader(self, schema: Any) -> DataSourceReader:
        """All that is published now, or the state of a window."""
        if self._options.window is not None:
            return WindowReader(self._options, schema)
        require_text(schema, self._options)
        return OutputReader(found(self._options).output, schema, self._options.form == "text")

    def streamReader(self, schema: Any) -> OutputStream:
        """What is published from now on, or has been before too. Raises nothing: see there."""
        return OutputStream(self.options, schema)

    @in_one_line()
    def writer(self, schema: Any, overwrite: bool) -> JobWriter:
        """Writes rows into a running job."""
        options = write_options(self.options)
        _require_segments(schema)
        if overwrite:
            raise UserError(
                'format("onyx"): rows are added to what a job reads: use mode("append")'
            )
        return JobWriter(target_of(options), options)

    @in_one_line()
    def streamWriter(self, schema: Any, overwrite: bool) -> JobStreamWriter:
        """Writes the rows of each micro-batch into a running job."""
        options = write_options(self.options)
        _require_segments(schema)
        if options.id is not None:
            raise UserError(
                "format(\"onyx\"): a stream needs no option 'id': its checkpoint has one"
            )
        if overwrite:
            raise UserError(
                'format("onyx"): rows are added to what a job reads: use outputMode("append") or '
                '("update")'
            )
        return JobStreamWriter(target_of(options), options)


def _require_segments(schema: Any) -> None:
    """Raises UserError if rows of this schema cannot be segments."""
    wrong = unreadable(schema.jsonValue())
    if wrong:
        raise UserError(f'format("onyx"): rows cannot become segments: {wrong}')


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


class WindowReader(DataSourceReader):  # type: ignore[misc]
    """Reads the state of a window: one partition, asked where Spark executes it."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The extents as of now."""
        with in_one_line():
            yield state(self._options, arrow_of(self._schema))
