"""What differs between guarantees, in one module: jobs whose segments are accounted for, which is
`Delivery` itself, and jobs under at-most-once (`at_most_once`).

Everything else in `task/` is the same for both: where segments are accounted for, batches have
roots and ids, and code that meets a batch without them has nothing to account for. Asking for the
guarantee wherever it matters was rejected: what one guarantee means is to be read in one module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from onyx.flow.batch import Batch
from onyx.flow.leaves import Leaves
from onyx.ids import PeerId, TaskName
from onyx.program.phases import Phase
from onyx.task.acking.sender import AckSender
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Wiring
from onyx.task.delivery.end_of_input import EndOfInput
from onyx.task.source.partition import Partition
from onyx.task.source.source import Source
from onyx.transport.interface import Inbox

Put = Callable[[TaskName, Batch], None]
"""Put a batch for this child task into the outbox."""


class Delivery:
    """The delivery of one task on one peer, under at-least-once and exactly-once: acks account for
    segments, and what is lost is replayed."""

    durable: bool = True
    """Whether state is kept where other processes find it, and what windows emit begins trees: such
    a task owns partitions."""
    partition: type[Partition] = Partition
    """How a source reads one."""
    keeps: bool = False
    """Whether there may be anything to `take_kept`."""

    def end_of_input(self, wiring: Wiring, outbox: Outbox, acks: AckSender) -> EndOfInput:
        """How this task learns that its input has ended, in one allocation version."""
        return EndOfInput()

    def keep(
        self,
        phase: Phase,
        batch: Batch | None,
        leaves: Leaves | None,
        waiting: Iterable[Batch],
        outbox: Outbox,
        inbox: Inbox,
        upstream: Mapping[PeerId, TaskName],
    ) -> None:
        """The allocation has changed: keep what nobody replays. The inbox is closed.

        Args:
            phase: in which the task is.
            batch: on which it works.
            leaves: what the function has made of the batch.
            waiting: what was read together with the batch.
            upstream: peers of the tasks above, each with its task.
        """

    def take_kept(self, put: Put) -> tuple[Batch | None, Leaves | None] | None:
        """Something that was kept, for the task to go on with: batches that were not sent go to
        `put`, others are returned, with their leaves if the function has run. None: nothing."""
        return None

    def leave(self, source: Source) -> None:
        """The job goes on without this peer: save how far it has read. If that fails, the next
        owner replays a little more."""
        source.give_away(source.known)

    def read_through(self, source: Source, ends: EndOfInput) -> bool:
        """Whether an input that has read everything is done: all of it has arrived."""
        return source.all_complete()

    def fed_no_more(self, ends: EndOfInput, exhausted: bool) -> bool:
        """Whether nothing more comes to a windowed task.

        Args:
            ends: of its input.
            exhausted: the log says that everything that feeds the task has ended.
        """
        return exhausted
