"""Opening a partition of an input at its frontier, with all that keeps account of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onyx.base.seams import Clock
from onyx.ledger.lineage import source_number
from onyx.ledger.pending import PendingWindow
from onyx.ledger.retry_delay import RetryDelay
from onyx.ledger.retry_modes import GivingUpWindow, OrderedWindow, ReturningWindow
from onyx.model.job import CatalogEntry
from onyx.model.plugins import returns_failures
from onyx.plugins.journalled.owning import AckedReader
from onyx.plugins.protocol import Input
from onyx.program.reading.segments_reader import plugin_reader
from onyx.task.batching.sizing import BatchSizing
from onyx.task.source.batch_timeout import FilledReader
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.task.source.partition import WINDOW_FACTOR, Partition
from onyx.task.source.rereading import open_at

WINDOWS: Mapping[str, type[PendingWindow]] = {
    "individual": PendingWindow,
    "all-after": OrderedWindow,
    "none": GivingUpWindow,
}
"""By the `retryMode` of the input."""


def window_of(entry: CatalogEntry) -> type[PendingWindow]:
    """What is done about positions of an input that have failed."""
    kind = WINDOWS[entry.retry_mode]
    returns = returns_failures(entry.type, entry.plugin, entry.options)
    return ReturningWindow if returns and kind is PendingWindow else kind


class Opener(msgspec.Struct, frozen=True):
    """Opens the partitions of one task."""

    plugin: Input
    entry: CatalogEntry
    sizing: BatchSizing
    clock: Clock
    kind: type[Partition]
    """How each is read, by the guarantee of the job."""
    retry_delay: RetryDelay

    def open(self, number: int, name: str, store: FrontierStore, at: Frontier) -> Partition:
        """A partition that is read from its frontier on.

        Raises:
            UserError: something of it is not there any more.
            Unavailable: the source does not give it now.
        """
        kind, entry = self.kind, self.entry
        columns = entry.batch_format == "arrow"
        reader = open_at(self.plugin, name, at.cursor, at.position, kind.certain, columns)
        own = plugin_reader(reader)
        return kind(
            number=number,
            name=name,
            sizing=self.sizing,
            store=store,
            reader=FilledReader(reader, self.clock, entry.batch_timeout / 1000),
            window=window_of(entry)(
                partition=number,
                frontier=at.position,
                capacity=WINDOW_FACTOR * self.sizing.pending_max,
                pending_timeout_s=entry.pending_timeout / 1000,
                retry_interval_s=entry.input_retry_timeout / 1000,
                started_s=self.clock.monotonic_s(),
                retry_delay=self.retry_delay,
            ),
            next_position=at.position,
            counted_from=at.position,
            source=source_number(entry.name, name),
            columns=columns,
            sent_before=at.reserved if kind.certain else 0,
            waiting=own if kind.certain and isinstance(own, AckedReader) else None,
        )
