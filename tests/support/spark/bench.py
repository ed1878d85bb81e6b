"""Jobs on a bench of which each may run on peers or on Spark, one after the other.

Real tasks, real drivers, real queries and their chunks; frames stand in for Spark
(`support.spark.query`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from tests.support.jobs.bench import Bench
from tests.support.spark.query import Frames

from onyx.settings import Settings, StateSettings
from onyx.spark.driver.request import QueryBatch, QueryProgress, QueryReply, QueryRequest
from onyx.spark_query import run
from onyx.spark_query.failure import found_in
from onyx.spark_query.programs import Query, QueryConfig
from onyx.spark_query.stream import Stream
from onyx.state.location import open_store

BUCKETS = 3


class FramesQuery:
    """A query over inputs without end, a micro-batch whenever it is asked for one."""

    def __init__(self, request: QueryRequest, scratch: Path) -> None:
        self.request = msgspec.structs.replace(request, scratch=str(scratch))
        partitions = run._partitions(Query(QueryConfig(self.request, (), 1)))
        buckets = request.held.buckets or BUCKETS
        self._frames = Frames(buckets)
        config = QueryConfig(self.request, partitions, buckets)
        self._stream = Stream(Query(config), partitions, self._staged)
        self._batch: QueryBatch | None = None
        self._failed: QueryReply | None = None
        self.ended = False
        self.progress: QueryProgress | None = None

    def _staged(self, batch: QueryBatch) -> None:
        self._batch = batch

    @property
    def batch(self) -> QueryBatch | None:
        if self._batch is None and not (self.ended or self._failed or self._stream.is_over):
            try:
                self._stream.advance(self._frames, lambda number: None)
            except Exception as error:
                self._failed = QueryReply(found_in(error))
        return self._batch

    def published(self, number: int) -> None:
        assert self._batch is not None
        assert self._batch.number == number
        self._batch = None

    def reply(self) -> QueryReply | None:
        if self._failed is None and self._batch is None and self._stream.is_over:
            return QueryReply(None, {}, self._stream.counts)
        return self._failed

    def end(self, then: Callable[[], None] | None = None) -> None:
        self.ended = True
        self._stream.close()
        if then is not None:
            then()


class EngineBench(Bench):
    """A job on either engine, whose files are below one folder."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        folder: Path,
        modules: tuple[str, ...],
        functions: Mapping[str, Callable[..., Any]],
        peers: Mapping[str, int] | None = None,
        after: Bench | None = None,
        place: str = "",
    ) -> None:
        """`place`: URL or folder of state, if not below `folder`."""
        location = f"{place or folder}/state"
        state = StateSettings(url=location, chunk_segments_max=4, snapshot_bytes_min=1)
        settings = Settings(data_dir=str(folder), modules=modules, state=state)
        more = {} if after is None else {"upgrade": {"from": after.id, **spec.get("upgrade", {})}}
        super().__init__({**spec, **more}, functions, peers, settings=settings, after=after)
        assert self._spec.upgrades == (None if after is None else after.id)
        self.store = open_store(location)
        self._scratch = folder / "scratch"
        self._scratch.mkdir(exist_ok=True)

    def start_query(self, request: QueryRequest, wake: Callable[[], None]) -> Any:
        query = FramesQuery(request, self._scratch)
        self.queries.append(query)  # type: ignore[arg-type]
        return query
