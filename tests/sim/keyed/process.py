"""A simulated worker process whose tasks look up a table: each process reads it, from a source that
may refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tests.sim.windows.process import Process

from onyx.flow.batch import Segment
from onyx.plugins.bases import IndexedReader
from onyx.plugins.protocol import Cursor, Input, PluginContext, Reader

if TYPE_CHECKING:
    from tests.sim.keyed.world import KeyedWorld

ROWS_AT_ONCE = 7


class KeyedProcess(Process):
    def build_input(self, plugin: str, context: PluginContext) -> Input:
        if plugin == "m:table":
            return Rows(cast("KeyedWorld", self.world))
        return super().build_input(plugin, context)


class Rows(Input):
    """The source of the table."""

    cooperative = True

    def __init__(self, world: KeyedWorld) -> None:
        self._world = world

    def partitions(self) -> Sequence[str]:
        self._world.faults.before()
        return [str(number) for number in range(len(self._world.story.rows))]

    def open(self, partition: str, cursor: Cursor) -> Reader:
        rows = self._world.story.rows[int(partition)]

        def fetch(first: int, rows_max: int) -> list[Segment]:
            self._world.faults.before()
            last = first + min(rows_max, ROWS_AT_ONCE)
            return [dict(row) for row in rows[first:last]]

        return IndexedReader(cursor.position, fetch, lambda: len(rows))

    def close(self) -> None: ...
