"""Sources that give what a test puts there, when it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.jobs.bench import Bench

from onyx.flow.batch import Segment
from onyx.plugins.bases import IndexedReader
from onyx.plugins.protocol import Cursor, Input, PluginContext, Reader


class Feed(Input):
    """A source whose partitions give what is put there, until they are ended."""

    cooperative = True

    def __init__(self, partitions: Sequence[str]) -> None:
        self.given: dict[str, list[Segment]] = {name: [] for name in partitions}
        self.closed: set[str] = set()

    def give(self, partition: str, *times: Any) -> None:
        self.given[partition] += [{"t": time} for time in times]

    def end(self, *partitions: str) -> None:
        self.closed.update(partitions or self.given)

    def partitions(self) -> Sequence[str]:
        return list(self.given)

    def open(self, partition: str, cursor: Cursor) -> Reader:
        given = self.given[partition]

        def fetch(first: int, segments_max: int) -> list[Segment]:
            return [dict(segment) for segment in given[first : first + segments_max]]

        def end() -> int | None:
            return len(given) if partition in self.closed else None

        return IndexedReader(cursor.position, fetch, end)

    def close(self) -> None: ...


class Fed(Bench):
    """A bench whose inputs read from feeds: `feeds[task]`."""

    def __init__(self, spec: dict[str, Any], feeds: dict[str, Feed], **more: Any) -> None:
        self.feeds = feeds
        functions = {"m:same": lambda segment: segment, **more.pop("functions", {})}
        super().__init__(spec, functions, **more)

    def build_input(self, plugin: str, context: PluginContext) -> Input:
        return self.feeds[context.task]
