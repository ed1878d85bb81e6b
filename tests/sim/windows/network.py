"""Traffic between simulated processes, in the hands of the seed.

Batches and control items go from outbox to inbox in order or are refused, as with the real
transports; between processes they are encoded. Acks and completions wait here until the world
delivers them: in any order, long after their version is over, or never.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from onyx.base.runs import Numbers
from onyx.flow.batch import Batch
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.ledger.returns import Trees
from onyx.requests.request import Answer, Append
from onyx.transport.counters import Counters
from onyx.transport.encoded import through_bytes
from onyx.transport.inbox import BoundedInbox, Inboxes
from onyx.transport.interface import Bounds, Channel, Load, Lookup, Sendable

if TYPE_CHECKING:
    from tests.sim.windows.process import Process

Message = tuple[GroupId, str, tuple[Any, ...]]
"""To whom, the name of the handler, and its arguments."""
LOADS = {True: tuple(Load), False: (Load.HUNGRY, Load.BEHIND)}
"""What may be said of a peer of this process, and of another."""


class Network:
    """All links; `refusals` is how often a send between processes is refused."""

    def __init__(
        self,
        choice: random.Random,
        refusals: float,
        losses: float,
        sent: Callable[[Batch], None],
        taken: Callable[[Channel, Batch], None],
        about_held: random.Random,
    ) -> None:
        """`sent` hears of every batch that is on its way, `taken` of those that an inbox has taken.
        `about_held`: for what is said of trees that somebody works on, so that all else is as
        without."""
        self._choice = choice
        self.sent = sent
        self.taken = taken
        self.refusals = refusals
        self.losses = losses
        self.processes: dict[GroupId, Process] = {}
        self.inboxes = Inboxes()
        self.messages: list[Message] = []
        self._about_held = about_held
        self._held: list[Message] = []

    def reach(self, source: GroupId, target: GroupId) -> Process | None:
        """The process, if it takes something now."""
        if source != target and self._choice.random() < self.refusals:
            return None
        return self.processes.get(target)

    def load(self, near: bool) -> Load:
        """Anything: what is known of a peer may be old."""
        return self._choice.choice(LOADS[near])

    def post(self, source: GroupId, message: Message) -> None:
        if message[0] == source:
            self.deliver(message)
        elif self._choice.random() >= self.losses:
            self.messages.append(message)

    def post_held(self, source: GroupId, message: Message) -> None:
        """Say that somebody works on trees."""
        if message[0] == source:
            self.deliver(message)
        elif self._about_held.random() >= self.losses:
            self._held.append(message)

    def deliver_held(self, share: float) -> None:
        """Each of these messages, some rounds later."""
        waiting, self._held = self._held, []
        for message in waiting:
            if self._about_held.random() < share:
                self.deliver(message)
            else:
                self._held.append(message)

    def deliver(self, message: Message) -> None:
        group, handler, arguments = message
        process = self.processes.get(group)
        if process is not None:
            getattr(process, handler)(*arguments)


class Link:
    """Implements `Transport` for one process."""

    address = "simulated:0"

    def __init__(self, network: Network, group: GroupId) -> None:
        self._network = network
        self._group = group

    def start(self, group: GroupId, handlers: Any) -> None: ...

    def connect(self, groups: Mapping[GroupId, str]) -> None: ...

    def open_inbox(
        self,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        bounds: Bounds,
        wake: Callable[[], None],
    ) -> BoundedInbox:
        return self._network.inboxes.open((job, version, target), bounds, wake, _nothing)

    def send(self, group: GroupId, channel: Channel, item: Sendable, more: bool = False) -> bool:
        if self._network.reach(self._group, group) is None:
            return False
        inbox = self._network.inboxes.find((channel.job, channel.version, channel.target))
        if inbox is None:
            return False
        if isinstance(item, Batch):
            if not item.segments:
                return True
            self._network.sent(item)
            sent = item if group == self._group else through_bytes(item)
            taken = inbox.offer(channel, sent)
            if taken:
                self._network.taken(channel, item)
            return taken
        return inbox.offer(channel, item)

    def load(self, group: GroupId, channel: Channel) -> Load:
        return self._network.load(near=group == self._group)

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
        if self._network.reach(self._group, group) is None:
            return False
        self._network.post(self._group, (group, "on_acks", (job, version, acker, roots, values)))
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
        if self._network.reach(self._group, group) is None:
            return False
        arguments = (job, version, target, roots, retries_max)
        self._network.post(self._group, (group, "on_completions", arguments))
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
        if self._network.reach(self._group, group) is None:
            return False
        arguments = (job, version, target, trees, to_acker)
        self._network.post(self._group, (group, "on_returns", arguments))
        return True

    def send_lookup(self, group: GroupId, message: Lookup) -> None:
        self._network.post(self._group, (group, "on_lookup", (message,)))

    def forward(self, address: str, append: Append) -> Future[Answer]:
        raise AssertionError("nobody hands over a request here")

    def send_held(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
    ) -> bool:
        self._network.post_held(self._group, (group, "on_held", (job, version, target, roots)))
        return True

    def counters(self) -> Counters:
        return self._network.inboxes.counters()

    def on_room(self, wake: Callable[[], None]) -> None: ...

    def stop(self) -> None: ...


def _nothing() -> None:
    """The world steps every task anyway."""
