"""Traffic inside one process: a batch goes from one task to another as it is.

This is the whole transport of a single process (tests, `onyx run --processes 1`), and the part of
the gRPC transport that serves peers of the same group.

With `short_circuit` off, batches are encoded and decoded as if they had crossed the network; tests
use this to find values that would not survive the journey.

Threads: every method may be called from any thread; the handlers are called on the sender's thread,
with no lock held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onyx.base.runs import Numbers
from onyx.errors import InvariantViolated
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.ledger.returns import Trees
from onyx.transport.counters import Counters
from onyx.transport.encoded import through_bytes
from onyx.transport.inbox import BoundedInbox, Inboxes
from onyx.transport.interface import Bounds, Channel, Control, Handlers, Load, Lookup, Sendable


class LocalTransport:
    """Implements `Transport` for one group; a send to any other is refused for ever."""

    def __init__(self, short_circuit: bool = True) -> None:
        self.inboxes = Inboxes()
        self._short_circuit = short_circuit
        self._group: GroupId | None = None
        self._handlers: Handlers | None = None
        self._wakes: tuple[Callable[[], None], ...] = ()
        self._unroutable = Counters()

    @property
    def address(self) -> str:
        """No address: no other process can reach this one."""
        return "local:0"

    def start(self, group: GroupId, handlers: Handlers) -> None:
        """Take part as this group; `handlers` are called from now on."""
        if self._group is not None:
            raise InvariantViolated(f"the transport of {self._group} is started already")
        self._group, self._handlers = group, handlers

    def connect(self, groups: Mapping[GroupId, str]) -> None:
        """Nothing to do: there is no other group."""

    def open_inbox(
        self,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        bounds: Bounds,
        wake: Callable[[], None],
    ) -> BoundedInbox:
        """`wake` is called (on any thread) whenever something arrives in an empty inbox."""
        inbox = self.inboxes.open((job, version, target), bounds, wake, self.room)
        self.room()
        return inbox

    def send(self, group: GroupId, channel: Channel, item: Sendable, more: bool = False) -> bool:
        """Queue a batch or control item. False for another group, and while the peer has no
        inbox."""
        if group != self._group:
            return False
        inbox = self.inboxes.find((channel.job, channel.version, channel.target))
        if inbox is None:
            # As over the network: not open yet, or of another version. The sender keeps its place
            # until the inbox opens or it is rewired itself.
            self._unroutable.refused_sends += 1
            return False
        if not isinstance(item, Control):
            if not len(item):
                return True
            if not self._short_circuit:
                item = through_bytes(item)
        return inbox.offer(channel, item)

    def load(self, group: GroupId, channel: Channel) -> Load:
        """What a peer of this group has to do."""
        inbox = self.inboxes.find((channel.job, channel.version, channel.target))
        return Load.BEHIND if group != self._group or inbox is None else inbox.load()

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
        if group != self._group or self._handlers is None:
            return False
        self._handlers.on_acks(job, version, acker, roots, values)
        return True

    def send_completions(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
        retries_max: int,
    ) -> bool:
        """Queue completions for an input."""
        if group != self._group or self._handlers is None:
            return False
        self._handlers.on_completions(job, version, target, roots, retries_max)
        return True

    def send_returns(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        trees: Trees,
        to_acker: bool,
    ) -> bool:
        """Queue what functions give back for trees."""
        if group != self._group or self._handlers is None:
            return False
        self._handlers.on_returns(job, version, target, trees, to_acker)
        return True

    def send_held(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
    ) -> bool:
        """Say that somebody works on these trees."""
        if group != self._group or self._handlers is None:
            return False
        self._handlers.on_held(job, version, target, roots)
        return True

    def send_lookup(self, group: GroupId, message: Lookup) -> None:
        """Ask for states, or answer."""
        if group == self._group and self._handlers is not None:
            self._handlers.on_lookup(message)

    def on_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a send that was refused may succeed now."""
        self._wakes = (*self._wakes, wake)

    def room(self) -> None:
        """A send that was refused may succeed now."""
        for wake in self._wakes:
            wake()

    def counters(self) -> Counters:
        """Totals since `start`."""
        total = self.inboxes.counters()
        total.add(self._unroutable)
        return total

    def stop(self) -> None:
        """Close all links and inboxes."""
        self.inboxes.close_all()
