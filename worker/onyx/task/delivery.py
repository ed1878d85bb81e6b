"""What differs between guarantees, in one module: jobs whose segments are accounted for, which is
`DeliveryPolicy` itself, jobs under at-most-once (`AtMostOnce`), and those with both
(`MixedDelivery`).

Everything else in `task/` is the same for all: where segments are accounted for, batches have
roots and ids, and code that meets a batch without them has nothing to account for. Asking for the
guarantee wherever it matters was rejected: what one guarantee means is to be read in one module.

**At-most-once.** Nothing is accounted for and nothing replayed. So nobody replays what a new
allocation version throws away, and a peer that stays on its task keeps it: what it had received,
what it was working on, and what it had not sent yet. What was sent and not received is lost, and so
is what a peer has that leaves its task. Nothing is done twice: a batch is kept as it was before the
function or after it, never both, and what is resent was refused before. Stopping inputs until
everything has arrived was rejected: then a new allocation would wait for the slowest task, and for
a dead one for ever.

**Mixed.** What has roots is replayed, and what has none is kept over a change of the allocation.
State is as durable as where everything is accounted for. Completions do not say when the last
segment without roots has arrived, so the job ends by END items. An input that is accounted for ends
its channels when all its trees are complete: nothing of it comes any more, not even again. To
follow the other segments alone through the workflow was rejected: every task that meets both would
have two ends.

**The end of input without acks.** Nobody knows when the last segment has arrived. So every input
ends each channel with an END item that carries an id of one shared tree. A task passes END on when
all its upstream peers have ended: it consumes what came and produces what goes. An output consumes
when all it was given is durable. The XOR of that tree is zero when the whole job has ended, and the
inputs get its completion. Counting messages through the log was rejected: it needs a command and an
entry a peer.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from onyx.base.runs import Numbers
from onyx.flow.batch import Batch
from onyx.flow.leaves import Leaves
from onyx.ids import PeerId, TaskName
from onyx.ledger.lineage import END_ROOT, END_ROOTS
from onyx.model.job import CatalogEntry, Job
from onyx.program.phases import Phase
from onyx.task.acking.sender import AckSender
from onyx.task.channels.edges import batches_apart
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Wiring
from onyx.task.source.partition import Partition, UntrackedPartition
from onyx.task.source.source import Source
from onyx.transport.interface import Control, ControlKind, Inbox

Put = Callable[[TaskName, Batch], None]
"""Put a batch for this child task into the outbox."""

_READ = (Phase.AFTER_READ_BATCH, Phase.APPLY_FN)

_APPLIED = (Phase.AFTER_APPLY_FN, Phase.ROUTE, Phase.ASSIGN_WINDOWS, Phase.SEND)


class DeliveryPolicy:
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


class AtMostOnce(DeliveryPolicy):
    """Segments without roots."""

    durable = False
    keeps = True
    partition: type[Partition] = UntrackedPartition

    def __init__(self) -> None:
        self._received: deque[Batch] = deque()
        """Bounded by what an inbox holds."""
        self._applied: tuple[Batch, Leaves] | None = None
        self._unsent: deque[tuple[TaskName, Batch]] = deque()
        """Batches that were put and not sent, each with the child task that it goes to."""

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


class MixedDelivery(AtMostOnce):
    """Segments with roots and without."""

    durable = True

    def __init__(self, entry: CatalogEntry) -> None:
        super().__init__()
        untracked = entry.guarantee == "at-most-once"
        self.partition: type[Partition] = UntrackedPartition if untracked else Partition

    def leave(self, source: Source) -> None:
        """Save how far an input was read that is accounted for."""
        if self.partition.certain:
            source.give_away(source.known)

    def read_through(self, source: Source, ends: EndOfInput) -> bool:
        """When every output has everything of every input."""
        if source.all_complete():
            ends.pass_on()
        return ends.complete


def delivery_of(job: Job, entry: CatalogEntry) -> DeliveryPolicy:
    """The delivery of a task of a job."""
    if job.guarantee == "at-most-once":
        return AtMostOnce()
    return MixedDelivery(entry) if job.loses_track else DeliveryPolicy()


# --- the end of input ---------------------------------------------------------------------------


class EndOfInput:
    """The end of input of one task, within one allocation version. Without END items, as where
    segments are accounted for: completions and `exhaust-input` say what has ended."""

    complete: bool = False
    """Every output has everything (known to inputs only)."""

    def arrive(self, source: PeerId, control: Control) -> None:
        """An upstream peer has sent END."""

    def all_arrived(self) -> bool:
        """Whether every upstream peer has sent END."""
        return False

    def pass_on(self) -> None:
        """End every channel downstream, once."""

    def take_completion(self, roots: Numbers) -> bool:
        """Whether these roots are the completion of the END tree: the whole job has ended."""
        return False


class EndItems(EndOfInput):
    """END items, for segments that are not accounted for."""

    def __init__(self, wiring: Wiring, outbox: Outbox, acks: AckSender) -> None:
        self._wiring = wiring
        self._outbox = outbox
        self._acks = acks
        self._arrived: dict[PeerId, int] = {}
        self._passed_on = False

    def arrive(self, source: PeerId, control: Control) -> None:
        """Count it by its id."""
        self._arrived[source] = control.id

    def all_arrived(self) -> bool:
        """Never for a peer without upstream peers, as an input is: it ends by itself."""
        upstream = self._wiring.upstream
        return bool(upstream) and len(self._arrived) == len(upstream)

    def pass_on(self) -> None:
        """Consume what arrived, produce an id for each channel, and ack both."""
        if self._passed_on:
            return
        self._passed_on = True
        value = 0
        for consumed in self._arrived.values():
            value ^= consumed
        for child in self._wiring.children:
            for site in child.sites:
                produced = end_id(self._wiring.me.peer, site.peer)
                value ^= produced
                self._outbox.put_to(site, Control(ControlKind.END, END_ROOT, produced))
        self._acks.add(END_ROOTS, np.array([value], dtype=np.uint64))

    def take_completion(self, roots: Numbers) -> bool:
        """The END tree has one root."""
        if len(roots) != 1 or roots[0] != END_ROOT:
            return False
        self.complete = True
        return True


def end_id(source: PeerId, target: PeerId) -> int:
    """Id of the END item on the channel between two peers; never 0."""
    digest = hashlib.blake2b(f"{source}>{target}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") | 1
