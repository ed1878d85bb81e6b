"""The seam between tasks and the network: batches, control items, acks and lookups between peers.

One transport a process. It treats a peer of the same process like any other, but hands the batch
over without encoding it (short circuit). Every send is bounded: False means "no room, keep your
place and try again later", which is how back-pressure travels.

A *lookup* asks a task that keeps state. It names the groups whose states a batch needs, an answer
has the states of the first of them, as many as fit. Neither changes anything, so a question may be
asked again, and what comes twice is the same. Both pass by the limits of a link: a task asks for
one batch at a time.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import msgspec

from onyx.base.runs import Numbers
from onyx.flow.batch import Batch
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.ledger.returns import Trees
from onyx.requests.request import Answer, Append
from onyx.transport.counters import Counters
from onyx.transport.state_queries import StateAnswer, StateQuery

FRONTIERS_MAX = 1024
"""Frontiers in one EPOCH: at most 10 kB. More go in further items of the same number."""


class Channel(msgspec.Struct, frozen=True):
    """From one peer to another, within one allocation version of a job. Hashable, small."""

    job: JobId
    version: AllocationVersion
    source: PeerId
    target: PeerId


class ControlKind(enum.IntEnum):
    """Items that travel in order between batches."""

    FLUSH = 1
    """Make durable what you hold: the sender waits for acks or has reached its end."""
    END = 2
    """No more segments on this channel in this allocation version (at-most-once completion)."""
    WATERMARK = 3
    """Event time has come to `time_ms` on this channel, or the channel is idle."""
    EPOCH = 4
    """All that was sent before this came out of an epoch up to this one; nothing below its
    frontiers is sent after it."""


class Control(msgspec.Struct, frozen=True):
    """An item that carries no segment. Immutable, and compared by value."""

    kind: ControlKind
    root: int = 0
    id: int = 0
    """Lineage of an END, so that the ledger can tell when all of them have arrived."""
    time_ms: int | None = None
    """The event time of a WATERMARK: 64 bits, signed. None: idle, this channel does not hold event
    time back."""
    lull: bool = False
    """Whether the time of a WATERMARK holds only where all channels are idle, as this one is."""
    epoch: int = 0
    """The epoch of an EPOCH: its number, from 1; never lower than the one before on the same
    channel."""
    frontiers: tuple[tuple[int, int], ...] = ()
    """The frontiers of an EPOCH: partitions, each with the lowest position that may still be sent
    again."""


FLUSH = Control(ControlKind.FLUSH)


class Partial(msgspec.Struct, frozen=True):
    """Segments of which the sender has folded the states of windows already: these states, with the
    lineage of all the segments. It is acked like a batch of them, and cannot be taken apart."""

    states: bytes
    """States of the receiver's shards, as `codec.values` has them."""
    roots: Numbers
    ids: Numbers

    def __len__(self) -> int:
        return len(self.roots)


Sendable = Batch | Partial | Control


class Load(enum.IntEnum):
    """What a peer has to do, the least first."""

    HUNGRY = 0
    """It has looked for more, and found nothing."""
    BUSY = 1
    BEHIND = 2
    """There is as much as it needs for some time."""


class Delivery(msgspec.Struct):
    """What a task takes from its inbox."""

    channel: Channel
    item: Sendable


class Bounds(NamedTuple):
    """What an inbox may hold."""

    segments: int
    bytes: int
    """About."""


class Inbox(Protocol):
    """Bounded queue in front of one task of one peer, for one allocation version."""

    def take(self, segments_max: int) -> list[Delivery]:
        """Deliveries in order per channel, at most about `segments_max` segments in all (always at
        least one delivery if any waits). Frees room, so that senders may go on."""
        ...

    def hold(self, senders: frozenset[PeerId]) -> None:
        """Hold back what comes from these peers, and from no others any more: it is not given,
        takes no room of others, and nothing more of it is accepted."""
        ...

    def waiting_segments(self) -> int:
        """Segments that wait and are not held back; a control item counts as one."""
        ...

    def waiting_by_sender(self) -> Counter[PeerId]:
        """Segments that wait, also held back, by who has sent them; from any thread."""
        ...

    def waiting_roots(self) -> list[Numbers]:
        """The roots of the batches that wait, as far as they have any; from any thread."""
        ...

    @property
    def hurried(self) -> bool:
        """Whether a FLUSH or END waits: nobody should wait for more before them."""
        ...

    def drain(self) -> list[Delivery]:
        """Close, and give what waited; later frames for it are dropped and counted."""
        ...

    def close(self) -> None:
        """Drop what waits; later frames for it are dropped and counted."""
        ...


class Handlers(Protocol):
    """What the transport calls on its own threads; each must only enqueue and return. Tasks, ackers
    and the router are behind it (`peer.work.workforce`)."""

    def on_acks(
        self, job: JobId, version: AllocationVersion, acker: PeerId, roots: Numbers, values: Numbers
    ) -> None:
        """Acks for an acker of this group: columns of roots and of the values to XOR into them."""
        ...

    def on_completions(
        self,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
        retries_max: int,
    ) -> None:
        """Trees that are complete (`retries_max` 0), or that a flow condition asks to be read
        again, at most so many times."""
        ...

    def on_held(
        self, job: JobId, version: AllocationVersion, target: PeerId, roots: Numbers
    ) -> None:
        """Somebody works on these trees, for the input that began them or their acker."""
        ...

    def on_returns(
        self, job: JobId, version: AllocationVersion, target: PeerId, trees: Trees, to_acker: bool
    ) -> None:
        """What functions give back for trees: for an acker of this group, or from an acker for an
        input. It comes before the acks and completions of these trees."""
        ...

    def on_lookup(self, message: Lookup) -> None:
        """A task asks for states that a peer of this group keeps, or is answered."""
        ...

    def on_query(self, query: StateQuery) -> Future[StateAnswer]:
        """A client asks for the state of a window. The future fails with a UserError when asking
        again is no use, and with Unavailable when it may be."""
        ...

    def on_append(self, append: Append) -> Future[Answer]:
        """A client hands over a request, or another worker a part of one. The future always gets an
        answer, at the latest when the time that the request gives is over."""
        ...


class Transport(Protocol):
    """All traffic of one process."""

    @property
    def address(self) -> str:
        """`host:port` that other groups dial."""
        ...

    def start(self, group: GroupId, handlers: Handlers) -> None:
        """Take part as this group; `handlers` are called from now on."""
        ...

    def connect(self, groups: Mapping[GroupId, str]) -> None:
        """The groups (and their addresses) with which this one shares a job now: links to others
        are closed, new ones opened. Called with the whole mapping after each change."""
        ...

    def open_inbox(
        self,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        bounds: Bounds,
        wake: Callable[[], None],
    ) -> Inbox:
        """`wake` is called (on any thread) whenever something arrives in an empty inbox."""
        ...

    def send(self, group: GroupId, channel: Channel, item: Sendable, more: bool = False) -> bool:
        """Queue a batch or control item. False: no room, try again after `on_room`.

        Args:
            more: the sender has another batch in hand, so this one may wait for it on the wire.

        Raises:
            SegmentError: a segment cannot be encoded, or one alone does not fit in a frame.
        """
        ...

    def load(self, group: GroupId, channel: Channel) -> Load:
        """What the peer at the end of a channel has to do. Of one in another process nobody knows
        more than whether it is hungry. When it is behind, try again after `on_room`."""
        ...

    def send_acks(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        acker: PeerId,
        roots: Numbers,
        values: Numbers,
        urgent: bool = False,
    ) -> bool:
        """`urgent`: not to wait for company on the wire."""
        ...

    def send_completions(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
        retries_max: int,
    ) -> bool:
        """Queue completions for an input. False: no room. See `Handlers.on_completions`."""
        ...

    def send_returns(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        trees: Trees,
        to_acker: bool,
    ) -> bool:
        """Queue what functions give back, before the acks and completions that are sent later. See
        `Handlers.on_returns`."""
        ...

    def send_held(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
    ) -> bool:
        """Say that somebody works on these trees. False: no room, and it need not be tried again.
        See `Handlers.on_held`."""
        ...

    def send_lookup(self, group: GroupId, message: Lookup) -> None:
        """Ask for states, or answer. It may be lost with its link: whoever asks asks again."""
        ...

    def counters(self) -> Counters:
        """Totals since `start`."""
        ...

    def forward(self, address: str, append: Append) -> Future[Answer]:
        """Hand a request over to the group at an address. The future has an answer when that one
        gives it, or when it cannot be reached."""
        ...

    def on_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a send that was refused may succeed now."""
        ...

    def stop(self) -> None:
        """Close all links and inboxes. Idempotent."""
        ...


class LookUp(msgspec.Struct, frozen=True):
    """A question to the peer that has some groups."""

    job: JobId
    version: AllocationVersion
    target: PeerId
    """Who keeps the state."""
    group: GroupId
    """The group of who asks."""
    asker: PeerId
    number: int
    """Number of the question; the answer has the same."""
    state: str
    """Name of the state within its task."""
    keys: bytes
    """Group keys, by `codec.questions`."""
    durable: bool
    """Whether the answer waits until all that is in it is durable."""


class LookUpAnswer(msgspec.Struct, frozen=True):
    """The answer to a question."""

    job: JobId
    version: AllocationVersion
    target: PeerId
    """Who has asked."""
    number: int
    states: bytes
    """What the first keys have, by `codec.questions`."""
    error: str = ""
    """Why there is no answer."""


Lookup = LookUp | LookUpAnswer
