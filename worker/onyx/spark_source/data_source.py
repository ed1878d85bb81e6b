"""The data source itself: what PySpark calls.

PySpark makes it anew, or sends it on, in several processes: to find the schema, to plan, to read.
So it holds nothing but the options, and each process looks for the output itself. Only names of
classes of this package and plain values are in what Spark pickles.

Rejected: `pushFilters`, which PySpark refuses on a session that has not enabled it; columns are
left out by giving a schema with fewer of them. Also the simple stream reader: it reads on the
driver.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from types import ModuleType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from onyx.errors import UserError
from onyx.spark.objects.frames import spark_schema
from onyx.spark_source import schemas
from onyx.spark_source.errors import in_one_line
from onyx.spark_source.listing import OutputFiles, published
from onyx.spark_source.offsets import Rows
from onyx.spark_source.options import SourceOptions, read_options
from onyx.spark_source.outputs import Found, output_at
from onyx.spark_source.rows import TEXT, batches
from onyx.spark_source.stream import OutputStream, arrow_of


class OnyxDataSource(DataSource):  # type: ignore[misc]
    """`format("onyx")`: register it with `spark.dataSource.register(OnyxDataSource)`."""

    @in_one_line()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raises UserError: an option is wrong."""
        super().__init__(options)
        self._options = read_options(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "onyx"

    @in_one_line()
    def schema(self) -> Any:
        """The columns, when the user has given none."""
        if self._options.window is not None:
            return from_arrow_schema(_cluster().state_schema(self._options))
        if self._options.form == "text":
            return from_arrow_schema(TEXT)
        found = _found(self._options)
        output = found.output
        columns = found.schema or schemas.found_in(published(output), output.name)
        return from_arrow_schema(spark_schema(columns))

    @in_one_line()
    def reader(self, schema: Any) -> DataSourceReader:
        """All that is published now, or the state of a window."""
        if self._options.window is not None:
            return StateReader(self._options, schema)
        _check(schema, self._options)
        return OutputReader(_found(self._options).output, schema, self._options.form == "text")

    @in_one_line()
    def streamReader(self, schema: Any) -> OutputStream:
        """What is published from now on, or has been before too."""
        if self._options.window is not None:
            raise UserError("the state of a window is read at one moment: use spark.read")
        _check(schema, self._options)
        output = _found(self._options).output
        if output.content == "result":
            raise UserError(
                f"{output.name}: a result is made once, at the end of a job: use spark.read, or "
                'follow the parts with option("content", "parts")'
            )
        return OutputStream(output, schema, self._options)


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
            yield _cluster().state(self._options, arrow_of(self._schema))


def _check(schema: Any, options: SourceOptions) -> None:
    """Raises UserError if rows as text cannot have this schema."""
    if options.form == "text" and [each.dataType.typeName() for each in schema] != ["string"]:
        raise UserError(
            'format("onyx"): option as: text gives one column of text: leave out the schema, or '
            'give one STRING, such as schema("value STRING")'
        )


def _found(options: SourceOptions) -> Found:
    """The output that options name. Raises what `output_at` and `cluster.find` do."""
    if options.path is not None:
        return Found(output_at(options.path, options), None)
    found: Found = _cluster().find(options)
    return found


def _cluster() -> ModuleType:
    """Half of all that has to be imported, and Spark starts a process to look for a schema, one to
    plan and some to read: only those that ask a cluster pay for it."""
    from onyx.spark_source import cluster

    return cluster
