"""Inputs of live sources by way of a journal."""

from __future__ import annotations

from collections.abc import Sequence

from onyx.journal.journal import Journal
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.protocol import Cursor, Input, PluginContext, Reader
from onyx.plugins.sources.feed import SourceFeed
from onyx.plugins.sources.options import JournalledOptions
from onyx.plugins.sources.protocol import OpenSource


class JournalledInput(Input):
    """Reads live sources by way of a journal. Implements `owning.OwningInput`."""

    cooperative = False
    examined = True

    def __init__(
        self,
        context: PluginContext,
        options: JournalledOptions,
        partitions: int,
        opener: OpenSource,
        examine: bool = False,
    ) -> None:
        """
        Args:
            opener: opens a partition.
            examine: look whether every segment can travel.
        """

        def feed(name: str, journal: Journal) -> SourceFeed:
            number = self._partitions.names.index(name)
            return SourceFeed(
                lambda: opener(context, number, journal.cursor),
                context.clock,
                journal.restored,
                options.remember_ids,
                1_000 * options.remember_seconds,
                examine,
            )

        self._partitions = JournalledPartitions(
            context, partitions, options.journal_bytes_max, feed, options.retention
        )
        self.allocate = self._partitions.allocate

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        return self._partitions.names

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """Takes the journal over, and goes on with the source."""
        return self._partitions.open(partition, cursor)

    def close(self) -> None:
        """Leave the sources."""
        self._partitions.close()
