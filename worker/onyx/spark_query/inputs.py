"""The partitions that one task of Spark reads, whichever plugin gives them."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.protocol import Input
from onyx.spark.driver.request import Position
from onyx.spark_query.programs import Query
from onyx.spark_query.sources import Partition


class Inputs:
    """The plugins of the inputs of one fragment, in one task of Spark."""

    def __init__(self, query: Query, examined: set[str]) -> None:
        """`examined`: gets the inputs of which every segment can travel."""
        self._query = query
        self._examined = examined
        self._opened: dict[str, Input] = {}

    def whole(self, task: str, name: str) -> Partition:
        """A partition that is read once, to its end."""
        if task not in self._opened:
            self._opened[task] = self._noted(task, self._query.plugins.input(task))
        return Partition(self._query, self._opened[task], task, name)

    def resumed(self, start: Position) -> Partition:
        """A partition that is read on from a position. Its plugin stays open for the next
        micro-batch."""
        plugin = self._noted(start.task, self._query.plugins.kept_input(start.task))
        partition = Partition(self._query, plugin, start.task, start.name)
        partition.resume(start)
        return partition

    def close(self) -> None:
        """Close what nobody reads from any more."""
        for plugin in self._opened.values():
            plugin.close()

    def _noted(self, task: str, plugin: Input) -> Input:
        if plugin.examined:
            self._examined.add(task)
        return plugin


@contextmanager
def partition_of_file(query: Query, task: str, path: str) -> Iterator[Partition]:
    """A file of the result of a Spark stage, as a partition that is read in columns."""
    context = replace(query.plugins.context(task), batch_format="arrow")
    files = FilesInput(context, FilesInputOptions(path=glob.escape(path), hive_partitioning=False))
    yield Partition(query, files, task, path, columns=True)
    files.close()
