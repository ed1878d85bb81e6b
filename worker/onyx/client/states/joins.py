"""Joins of two streams: the rows that they hold, by key and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from onyx.client.states.checks import require_log, require_parts, require_states
from onyx.client.states.shards import by_group
from onyx.client.states.state import Files
from onyx.flow.groups.getters import group_of_parts
from onyx.flow.groups.keys import shard_of
from onyx.flow.predicates import Resolve
from onyx.keystate.extents import ALL, Extent
from onyx.keystate.groups import Shards
from onyx.keystate.records import Record
from onyx.keystate.selection import Selection
from onyx.model.job import CatalogEntry, Job
from onyx.operators.stream_join.definition import StreamJoin, stream_join
from onyx.operators.stream_join.operator import StreamJoinOperator


class JoinState(msgspec.Struct, frozen=True):
    """What a join holds. Implements `State`."""

    job: Job
    entry: CatalogEntry

    by_files = False
    in_time = True
    by_session_key = False
    grouped = True
    kind = "join of streams"

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.entry.name

    asked_as = task = name

    @property
    def in_store(self) -> bool:
        """Whether Spark runs the job, and has committed the rows."""
        return self.job.engine == "spark"

    @property
    def _key(self) -> Sequence[str]:
        """What a key is called: as the left side does."""
        assert self.entry.left is not None, "a join"
        return self.entry.left.keys

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: it is not here, or there is no such key."""
        require_states(self.job)
        require_log(self.job, durable)
        require_parts(select, self._key, f"join {self.name}")

    def shards(self, key: Any) -> Sequence[int]:
        """The key group of a key, or all."""
        if key is ALL or len(self._key) == 1:
            return by_group(key)
        return by_group(group_of_parts([key[each] for each in self._key]))

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], OneJoin]:
        """The join with no rows."""
        join = stream_join(self.job, self.name, resolve)
        assert join is not None, "a join"
        return partial(OneJoin, join)


class OneJoin:
    """A join, restored to be asked. Not thread-safe. Implements `Restored`."""

    def __init__(self, join: StreamJoin) -> None:
        self._held = StreamJoinOperator(join, Shards(shard_of), page_max=1)
        self._name = join.task

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records to a shard."""
        self._held.restore(shard, records)

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """The rows that are asked for, the first in order."""
        self._held.restored()
        return self._held.query(self._name, asked, extents_max)


def joins_of(job: Job) -> Iterator[JoinState]:
    """The joins of streams of a job."""
    for entry in job.catalog:
        if entry.type == "join":
            yield JoinState(job, entry)
