"""The data source itself: what PySpark calls.

PySpark makes it anew, or sends it on, in several processes: to find the schema, to plan, to read.
So it holds nothing but the options, and each process looks for the output itself. Only names of
classes of this package and plain values are in what Spark pickles.

Rejected: `pushFilters`, which PySpark refuses on a session that has not enabled it; columns are
left out by giving a schema with fewer of them. Also the simple stream reader: it reads on the
driver.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.pandas.types import from_arrow_schema

from onyx.errors import UserError
from onyx.plugins.files.spark_footer import unreadable
from onyx.spark.types import spark_schema
from onyx.spark_source import schemas
from onyx.spark_source.errors import in_one_line
from onyx.spark_source.listing import published
from onyx.spark_source.lookups import found, state_schema, target_of
from onyx.spark_source.options import SourceOptions, read_options, require_text
from onyx.spark_source.readers import OutputReader, StateReader
from onyx.spark_source.rows import TEXT
from onyx.spark_source.stream import OutputStream
from onyx.spark_source.write_options import write_options
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
            return StateReader(self._options, schema)
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
