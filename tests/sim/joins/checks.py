"""The invariants of a join of two streams, beside those of event time, logs, ids and frontiers.

M1 what is made is what a nested loop makes of all rows that are not late; M2 it comes out once, and
so does what is late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.sim.joins.story import number_of
from tests.sim.windows.checks import Checks, difference, text_of
from tests.support.stream_joins import HeldStreams, counted

from onyx.flow.arrays import Indices
from onyx.flow.batch import as_dicts
from onyx.flow.groups.keys import shard_of
from onyx.keystate.groups import Shards
from onyx.keystate.records import JoinRows, JoinSchema, Record, WatermarkReached
from onyx.operators.stream_join.changelog import ChangelogReader
from onyx.operators.stream_join.definition import StreamJoin
from onyx.operators.stream_join.keyed_rows import segments_of
from onyx.operators.stream_join.spans import END, Side
from onyx.state.recovery import RecoveredState
from onyx.task.state.keeper import StateKeeper
from onyx.task.task import Task

if TYPE_CHECKING:
    from tests.sim.joins.world import JoinWorld


class JoinChecks(Checks):
    stateful = ("meet",)

    def __init__(self, world: JoinWorld) -> None:
        super().__init__(world)
        self._of = world

    def _check_held(self, task: Task, keeper: StateKeeper, recovered: RecoveredState) -> None:
        its, shards = task.runtime.program.operator, keeper.shards
        assert isinstance(its, StreamJoin), "it is a join"
        again = HeldStreams(its, Shards(shard_of), 1_000)
        for shard in shards:
            again.restore(shard, [])
            for records in recovered.shards[shard].records():
                again.restore(shard, records)
        again.restored()
        logged, owned = again.freeze(shards), keeper.operator.freeze(shards)
        for shard in shards:
            stored, mine = (self._meaning(each(shard)) for each in (logged, owned))
            assert stored == mine, (
                f"W5: {task.name}, shard {shard}: the log has {stored}, its owner {mine}"
            )

    def _meaning(self, records: Sequence[Record]) -> Counter[Any]:
        """What a snapshot says, in no order. Of the right rows of `asof`, which of those go that
        others have replaced depends on which lie together. Behind the end nothing is left, and
        whoever takes over begins anew."""
        found: Counter[Any] = Counter()

        def store(side: Side, rows: pa.RecordBatch, shards: Indices) -> None:
            if not (side and self._of.story.latest):
                found.update(map(text_of, as_dicts(segments_of(rows))))

        rows = ChangelogReader(store, lambda side, schema: None)
        for each in records:
            if isinstance(each, WatermarkReached):
                found[text_of(each)] += each.watermark != END
            elif isinstance(each, JoinSchema | JoinRows):
                rows.apply(0, each)
        rows.finish()
        return found

    def at_end(self) -> None:
        self._check_replay()
        world, story = self._of, self._of.story
        emitted = list(world.storage.of("meet").emitted.values())
        made = [each["segment"] for each in emitted if each["child"] is None]
        late = [each["segment"] for each in emitted if each["child"] is not None]
        assert not (late and story.honest), f"W3: late, though it was not: {late}"
        numbers = Counter(map(number_of, late))
        assert not numbers or max(numbers.values()) == 1, f"M2: late twice: {numbers}"
        expected, found = story.results(numbers), counted(made)
        assert found == expected, f"M1: {difference(expected, found)}"
        self._check_written("write", made)
        if "late" in world.places:
            self._check_written("late", late)

    def _check_written(self, output: str, emitted: Iterable[Any]) -> None:
        written, expected = counted(self._of.places[output].segments()), counted(emitted)
        assert written == expected, f"M2: {output}: {difference(expected, written)}"

    def _tree(self, partition: int, position: int) -> dict[str, int]:
        task, index = self._of_partition(partition)
        if task == "meet":
            emission = self._of.storage.of("meet").emitted.get((index, position))
            assert emission is not None, f"C5: emission {index}/{position} is in no log"
            return {emission["child"] or "write": 1}
        return {"meet": len(self.segment(index, position)["leaves"])}
