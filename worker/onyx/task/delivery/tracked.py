"""At-least-once and exactly-once: acks account for segments, and what is lost is replayed."""

from __future__ import annotations

from onyx.flow.batch import Batch
from onyx.flow.leaves import Leaves
from onyx.task.acking.sender import AckSender
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Wiring
from onyx.task.delivery.end_of_input import EndOfInput, NoEndItems
from onyx.task.delivery.policy import Put
from onyx.task.phases.table import Phase
from onyx.task.source.partition import Partition
from onyx.task.source.source import Source
from onyx.transport.interface import Inbox


class Tracked:
    """See `policy.Delivery`."""

    durable = True
    partition: type[Partition] = Partition

    def end_of_input(self, wiring: Wiring, outbox: Outbox, acks: AckSender) -> EndOfInput:
        """The log says it: `exhaust-input`."""
        return NoEndItems()

    def keep(
        self, phase: Phase, batch: Batch | None, leaves: Leaves | None, outbox: Outbox, inbox: Inbox
    ) -> None:
        """Nothing: it is replayed."""

    def take_kept(self, put: Put) -> tuple[Batch | None, Leaves | None] | None:
        """Nothing is."""
        return None

    def leave(self, source: Source) -> None:
        """Save the frontiers. If that fails, the next owner replays a little more."""
        source.give_away(source.known)

    def read_through(self, source: Source, ends: EndOfInput) -> bool:
        """When every tree is complete."""
        return source.all_complete()

    def fed_no_more(self, ends: EndOfInput, exhausted: bool) -> bool:
        """When the log says so."""
        return exhausted
