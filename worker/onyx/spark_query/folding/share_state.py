"""What a task holds for one share of its groups: its operator, which keys it has seen, and what the
operator has left of what has come; between micro-batches in chunks of the state store.

A chunk (`state.buckets`) counts when a committed document names it (`request.BucketState`), so a
try that was not committed changes nothing, whoever made it and however late. First the whole state
of a bucket, then what each batch has changed; when changes are as large as the whole, or many, it
is written anew.

A process of Spark remembers what it has written last, because it often gets the bucket again. That
counts only if the document names exactly this.

Rejected: `transformWithState`, whose store would have to be on a volume for all workers, would move
every state through the JVM, and cannot be committed together with positions and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec import field

from onyx.flow.groups.keys import SHARDS
from onyx.keystate.buckets import InMemory
from onyx.keystate.groups import Shards
from onyx.keystate.records import append
from onyx.keystate.uniqueness import UniqueKeys
from onyx.operators.context import OperatorContext
from onyx.operators.table import operator_of
from onyx.program.operator import Operator
from onyx.program.program import Program
from onyx.spark.driver.request import BucketState
from onyx.spark_query.folding.inbox import LeftRows
from onyx.spark_query.programs import Query, QueryConfig
from onyx.state.buckets import encode_bucket, read_buckets, write_bucket
from onyx.state.chunks import ShardChange, StateChunkKind
from onyx.state.location import open_store
from onyx.state.names import TaskFolder
from onyx.state.shard_states import ShardState

CHUNKS_MAX = 8
"""The chunks of one bucket, before its state is written anew: a process that does not have it reads
them all.
"""
WARM_BYTES_MAX = 64 * 1024 * 1024
"""The size of chunks whose state a process remembers: in memory it is several times as large."""


class ShareState(msgspec.Struct):
    """The state of one bucket of a task."""

    operator: Operator
    shard_of: Shards
    shards: Sequence[int]
    ended: set[str]
    """The tasks upstream that begin trees and have ended."""
    left: LeftRows
    unique: dict[int, UniqueKeys] = field(default_factory=dict)

    @classmethod
    def empty(cls, program: Program, bucket: int, config: QueryConfig) -> ShareState:
        """The contents of a bucket, to be restored."""
        its, buckets, partitions = program.operator, config.buckets, config.partitions
        assert its is not None, "asked before"
        if not its.is_in_buckets:
            bucket, buckets = 0, 1
        own = [each for each in range(SHARDS) if each % buckets == bucket] if its.is_split else [0]
        shard_of, ended = its.shards(), set[str]()
        context = OperatorContext(
            program, shard_of, own, InMemory(), number=bucket, operators=buckets,
            ended=lambda: ended, durable=False,
        )  # fmt: skip
        return cls(operator_of(its, context), shard_of, own, ended, LeftRows(partitions))

    def restore(self, shards: Mapping[int, ShardState]) -> None:
        """Add what was read, if there is anything."""
        for shard in self.shards:
            self.operator.restore(shard, [])
        for shard, state in shards.items():
            for records in state.records():
                self.operator.restore(shard, self.left.restore(records))
            for keys in state.unique_keys():
                self.unique.setdefault(shard, UniqueKeys()).restore(keys)
        self.operator.restored()

    def resume(self, mark: int) -> None:
        """Event time was here when the state was recorded."""
        self.operator.resume(mark)

    def changes(self) -> dict[int, ShardChange]:
        """What has changed since the last time, by shard."""
        records = self.operator.take_changes()
        for record in self.left.take_changes():
            append(records, self.shards[0], record)
        keys = {shard: news for shard, each in self.unique.items() if (news := each.take_news())}
        return {
            shard: ShardChange(records.get(shard, ()), keys=keys.get(shard, []))
            for shard in sorted({*keys, *(each for each, its in records.items() if its)})
        }

    def whole(self) -> dict[int, ShardChange]:
        """All there is, by shard."""
        frozen = self.operator.freeze(self.shards)
        records = {shard: list(frozen(shard)) for shard in self.shards}
        for record in self.left.whole():
            append(records, self.shards[0], record)
        keys = {shard: each.snapshot() for shard, each in self.unique.items()}
        return {
            shard: ShardChange(its, keys=keys.get(shard, []))
            for shard, its in records.items()
            if its or keys.get(shard)
        }


_store = lru_cache(maxsize=4)(open_store)
"""One for all fragments and micro-batches of a process: that of S3 takes its time to open."""
_warm: dict[tuple[str, str, int], tuple[Query, BucketState, ShareState]] = {}
"""By job, task and bucket: what it was when this process had it last, for a query, whose tables an
operator may have. Oldest first."""


class KeptStates:
    """The states of the buckets that one fragment works on. Everything blocks.

    Everything raises Unavailable and UserError as the state store does.
    """

    def __init__(self, query: Query) -> None:
        request, self._query = query.request, query
        self._job = request.job_id
        self._store = _store(request.state_location, request.state_group_access)

    def load(self, program: Program, state: BucketState) -> ShareState:
        """What a bucket held behind the last batch.

        Raises:
            StateError: a chunk is gone or damaged.
        """
        known = _warm.pop((self._job, state.task, state.bucket), None)
        if known is not None:
            query, before, contents = known
            if query is self._query and before == state:
                return contents
            contents.operator.close()
        contents = ShareState.empty(program, state.bucket, self._query.config)
        names, folder = (name for name, _ in state.files), TaskFolder(self._job, state.task)
        contents.restore(read_buckets(self._store, folder, names, contents.shards))
        if state.mark is not None:
            contents.resume(state.mark)
        return contents

    def save(
        self, contents: ShareState, state: BucketState, number: int
    ) -> tuple[tuple[str, int], ...]:
        """Write what a batch has changed; what is the state of the bucket from now on.

        Args:
            state: before the batch.
            number: of the batch.

        Raises:
            SegmentError: a value of a state has no encoding.
        """
        changes, folder = contents.changes(), TaskFolder(self._job, state.task)
        if not changes:
            return state.files
        if state.files:
            data = encode_bucket(folder, number, state.bucket, StateChunkKind.CHANGE, changes)
            (_, whole), *since = state.files
            if len(state.files) < CHUNKS_MAX and sum(n for _, n in since) + len(data) < whole:
                return (*state.files, write_bucket(self._store, folder, number, state.bucket, data))
        all_there_is = contents.whole()
        if not all_there_is:
            return ()
        data = encode_bucket(folder, number, state.bucket, StateChunkKind.SNAPSHOT, all_there_is)
        return (write_bucket(self._store, folder, number, state.bucket, data),)

    def remember(self, state: BucketState, contents: ShareState) -> None:
        """Keep them in memory, as they are behind a batch."""
        if state.files:
            _warm[self._job, state.task, state.bucket] = self._query, state, contents
        else:
            contents.operator.close()
        sizes = [(key, sum(size for _, size in its.files)) for key, (_, its, _) in _warm.items()]
        total = sum(size for _, size in sizes)
        for key, size in sizes:
            if total <= WARM_BYTES_MAX:
                break
            _warm.pop(key)[-1].operator.close()
            total -= size
