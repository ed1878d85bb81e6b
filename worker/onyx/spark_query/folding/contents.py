"""What the windows of a task hold for one share of its groups, and which keys it has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.program.windows import Windowed
from onyx.state.chunks import ShardChange
from onyx.state.shard_state import ShardState
from onyx.windows.task_windows import TaskWindows
from onyx.windows.uniqueness import UniqueKeys


@dataclass(slots=True)
class Contents:
    """The windows of one bucket of a task, and which keys it has seen."""

    windows: TaskWindows
    shards: Sequence[int]
    unique: dict[int, UniqueKeys] = field(default_factory=dict)

    @classmethod
    def empty(cls, its: Windowed, bucket: int, buckets: int) -> Contents:
        """The contents of one of so many buckets."""
        windows = TaskWindows(its.compiled, shard_of)
        shards = [each for each in range(SHARDS) if each % buckets == bucket]
        found = cls(windows, shards if its.group_key is not None else [0])
        for shard in found.shards:
            windows.restore(shard, [])
        return found

    def restore(self, shards: Mapping[int, ShardState]) -> None:
        """Add what was read."""
        for shard, state in shards.items():
            for records in state.records():
                self.windows.restore(shard, records)
            for keys in state.unique_keys():
                self.unique.setdefault(shard, UniqueKeys()).restore(keys)

    def changes(self) -> dict[int, ShardChange]:
        """What has changed since the last time, by shard."""
        records = self.windows.take_changes()
        keys = {shard: news for shard, each in self.unique.items() if (news := each.take_news())}
        return {
            shard: ShardChange(records.get(shard, ()), keys=keys.get(shard, []))
            for shard in sorted({*keys, *(each for each, its in records.items() if its)})
        }

    def whole(self) -> dict[int, ShardChange]:
        """All there is, by shard."""
        records = self.windows.snapshots(self.shards)
        keys = {shard: each.snapshot() for shard, each in self.unique.items()}
        return {
            shard: ShardChange(its, keys=keys.get(shard, []))
            for shard, its in records.items()
            if its or keys.get(shard)
        }
