"""What a task holds for one share of its groups: windows, or the rows of a join; and which keys it
has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import field

from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.keystate.groups import Shards
from onyx.keystate.uniqueness import UniqueKeys
from onyx.program.program import Program
from onyx.program.streams.state import JoinedStreams
from onyx.state.chunks import ShardChange
from onyx.state.shard_state import ShardState
from onyx.windows.compiled import ROWS_PAGE_MAX
from onyx.windows.task_windows import TaskWindows


class Contents(msgspec.Struct):
    """The state of one bucket of a task, and which keys it has seen."""

    held: TaskWindows | JoinedStreams
    shards: Sequence[int]
    unique: dict[int, UniqueKeys] = field(default_factory=dict)

    @classmethod
    def empty(cls, program: Program, bucket: int, buckets: int) -> Contents:
        """The contents of one of so many buckets."""
        its = program.stateful
        assert its is not None, "asked before"
        shards = [each for each in range(SHARDS) if each % buckets == bucket]
        found = cls(_held(program), shards if its.is_split else [0])
        for shard in found.shards:
            found.held.restore(shard, [])
        return found

    def restore(self, shards: Mapping[int, ShardState]) -> None:
        """Add what was read."""
        for shard, state in shards.items():
            for records in state.records():
                self.held.restore(shard, records)
            for keys in state.unique_keys():
                self.unique.setdefault(shard, UniqueKeys()).restore(keys)
        self.held.restored()

    def resume(self, mark: int) -> None:
        """Event time was here when the state was recorded. Of joins the records say so."""
        if isinstance(self.held, TaskWindows):
            self.held.resume(mark)

    def changes(self) -> dict[int, ShardChange]:
        """What has changed since the last time, by shard."""
        records = self.held.take_changes()
        keys = {shard: news for shard, each in self.unique.items() if (news := each.take_news())}
        return {
            shard: ShardChange(records.get(shard, ()), keys=keys.get(shard, []))
            for shard in sorted({*keys, *(each for each, its in records.items() if its)})
        }

    def whole(self) -> dict[int, ShardChange]:
        """All there is, by shard."""
        frozen = self.held.freeze(self.shards)
        records = {shard: frozen(shard) for shard in self.shards}
        keys = {shard: each.snapshot() for shard, each in self.unique.items()}
        return {
            shard: ShardChange(its, keys=keys.get(shard, []))
            for shard, its in records.items()
            if its or keys.get(shard)
        }


def _held(program: Program) -> TaskWindows | JoinedStreams:
    if program.streams is not None:
        return JoinedStreams(program.streams, Shards(shard_of), ROWS_PAGE_MAX)
    assert program.windowed is not None, "windows, or a join"
    return TaskWindows(program.windowed.compiled, shard_of)
