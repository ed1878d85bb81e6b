"""What a process of Spark must know of a query, as text."""

from __future__ import annotations

import msgspec

from onyx.base.structs import prepared
from onyx.spark.driver.request import QueryRequest


@prepared
class QueryConfig(msgspec.Struct, frozen=True):
    """What a process of Spark must know of a query: the one value that is handed to it."""

    request: QueryRequest
    partitions: tuple[tuple[str, str], ...]
    """Input task and name of each partition, by number."""
    buckets: int
    """How many shares the groups of a task are in."""

    @classmethod
    def of(cls, text: str) -> QueryConfig:
        """The config in this JSON."""
        return msgspec.json.decode(text, type=QueryConfig)

    def text(self) -> str:
        """The config in JSON."""
        return msgspec.json.encode(self).decode()
