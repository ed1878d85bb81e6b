"""What a task holds for one share of its groups: its operator, which keys it has seen, and what the
operator has left of what has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from onyx.spark_query.config import QueryConfig
from onyx.spark_query.folding.left import Left
from onyx.state.chunks import ShardChange
from onyx.state.shard_state import ShardState


class Contents(msgspec.Struct):
    """The state of one bucket of a task."""

    operator: Operator
    shard_of: Shards
    shards: Sequence[int]
    ended: set[str]
    """The tasks upstream that begin trees and have ended."""
    left: Left
    unique: dict[int, UniqueKeys] = field(default_factory=dict)

    @classmethod
    def empty(cls, program: Program, bucket: int, config: QueryConfig) -> Contents:
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
        return cls(operator_of(its, context), shard_of, own, ended, Left(partitions))

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
