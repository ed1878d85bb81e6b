"""At-most-once: nothing is accounted for and nothing replayed.

Nobody replays what a new allocation version throws away, so a peer that stays on its task keeps it:
what it had received, what it was working on, and what it had not sent yet. What was sent and not
received is lost, and so is what a peer has that leaves its task. Nothing is done twice: a batch is
kept as it was before the function or after it, never both, and what is resent was refused before.
Stopping inputs until everything has arrived was rejected: then a new allocation would wait for the
slowest task, and for a dead one for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from onyx.flow.batch import Batch
from onyx.flow.leaves import Leaves
from onyx.ids import PeerId, TaskName
from onyx.program.phases import Phase
from onyx.task.acking.sender import AckSender
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.senders import batches_apart
from onyx.task.channels.wiring import Wiring
from onyx.task.delivery.end_of_input import EndItems, EndOfInput
from onyx.task.delivery.policy import Delivery, Put
from onyx.task.source.partition import Partition, UntrackedPartition
from onyx.task.source.source import Source
from onyx.transport.interface import Inbox

_READ = (Phase.AFTER_READ_BATCH, Phase.APPLY_FN)
_APPLIED = (Phase.AFTER_APPLY_FN, Phase.ROUTE, Phase.ASSIGN_WINDOWS, Phase.SEND)


class AtMostOnce(Delivery):
    """Segments without roots."""

    durable = False
    keeps = True
    partition: type[Partition] = UntrackedPartition

    def __init__(self) -> None:
        self._received: deque[Batch] = deque()
        """Bounded by what an inbox holds."""
        self._applied: tuple[Batch, Leaves] | None = None
        self._unsent: deque[tuple[TaskName, Batch]] = deque()
        """With the child task that each goes to."""

    def end_of_input(self, wiring: Wiring, outbox: Outbox, acks: AckSender) -> EndOfInput:
        """END items say it."""
        return EndItems(wiring, outbox, acks)

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
        """All that this peer has and nobody accounts for. In a phase after SEND the batch is in the
        outbox."""
        unsent = outbox.take_unsent()
        self._unsent.extend((child, each) for child, each in unsent if each.roots is None)
        if batch is None or batch.roots is not None:
            pass  # there is none, or it is replayed
        elif leaves is not None and phase in (*_READ, *_APPLIED):
            self._applied = (batch, leaves)
        elif phase in _READ:
            self._received.appendleft(batch)
        received = batches_apart(inbox.drain(), upstream)
        self._received.extend(each for each in (*waiting, *received) if each.roots is None)

    def take_kept(self, put: Put) -> tuple[Batch | None, Leaves | None] | None:
        """First what was furthest."""
        if self._unsent:
            while self._unsent:
                put(*self._unsent.popleft())
            return None, None
        if self._applied is not None:
            applied, self._applied = self._applied, None
            return applied
        if self._received:
            return self._received.popleft(), None
        return None

    def leave(self, source: Source) -> None:
        """What was reserved and not read is lost. A frontier that this peer saved late could move
        one of the next owner back, and segments would be read twice."""

    def read_through(self, source: Source, ends: EndOfInput) -> bool:
        """When every output has everything."""
        ends.pass_on()
        return ends.complete

    def fed_no_more(self, ends: EndOfInput, exhausted: bool) -> bool:
        """When every upstream peer has sent END."""
        return ends.all_arrived()
