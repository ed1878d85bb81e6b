"""The streaming source as PySpark knows it; what it decides is in `micro_batches`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from onyx.spark.query.micro_batches import DDL, batches_of

NAME = "onyx-inputs"


class MicroBatchSource(DataSource):  # type: ignore[misc]
    """Requests to read the inputs of a job."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return NAME

    def schema(self) -> str:
        """See `micro_batches.Asked`."""
        return DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """A reader for one query."""
        return MicroBatchReader(dict(self.options))


class MicroBatchReader(DataSourceStreamReader):  # type: ignore[misc]
    """An offset is the number of batches before it."""

    def __init__(self, options: dict[str, str]) -> None:
        self._batches = batches_of(options)

    def initialOffset(self) -> dict[str, Any]:
        """Behind what is committed: of a checkpoint that is new."""
        return {"batches": self._batches.reached().batches}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """The end of the next batch."""
        return {"batches": self._batches.next_offset(start["batches"])}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A request for each partition; a single one that asks for nothing if there are none."""
        asked = self._batches.asked(end["batches"])
        return [
            InputPartition((number, batch, msgspec.json.encode(position).decode()))
            for number, batch, position in asked
        ] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The request itself."""
        if partition.value is not None:
            yield partition.value
