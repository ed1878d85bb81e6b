"""What a task has produced and not yet handed over, in order, and which peer of a child gets it.

Bounded by construction: a task does not read the next batch before this is empty. A refused send
keeps its position. A grouped batch is split by the slot of its key, or of its id, and waits for
exactly that peer.

An ungrouped batch stays in this process if a peer of the child here is hungry, for it need not be
encoded then. If not, it goes to a process that is; if none is, it stays, unless all peers here are
behind: then it waits for whoever is the first to take more. So processes that have the same work
share little, and all work while one has too much. Where the child has no peer here, or has all
here, it goes to the next one in turn that has room, so slow peers get less. Rejected: to go
elsewhere when the inbox here is full. Inboxes are full wherever a source is faster than a function,
so as much would cross as by dice; and one holds minutes of work of a slow function.

What goes back in a loop waits apart, and holds nothing up: the task goes on reading meanwhile. If
it did not, two tasks of a loop with full inboxes would wait for each other for ever. So the tasks
of a loop always come to read, and only what is in flight bounds what waits. More than
`BACK_SEGMENTS_MAX` is an error, and no hang.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Mapping

import msgspec

from onyx.base.runs import Numbers, array_of
from onyx.errors import UserError
from onyx.flow.batch import U64, Batch, Indices
from onyx.flow.groups.grouping import Grouping
from onyx.flow.groups.keys import slots_of_shards
from onyx.ids import TaskName
from onyx.ledger.lineage import mix
from onyx.task.channels.wiring import ChildTask, Site, Wiring
from onyx.transport.interface import Channel, Control, Load, Partial, Sendable, Transport

BACK_SEGMENTS_MAX = 1_000_000
"""Segments of a task that may wait to go back in a loop."""

Groupings = Mapping[str, Grouping]
"""The groupings of a task, by child task, of those children that group."""


class Outbox:
    """The outbox of one task in one allocation version."""

    def __init__(self, transport: Transport, wiring: Wiring) -> None:
        self._transport = transport
        self._channels = {
            site.peer: Channel(wiring.job, wiring.version, wiring.me.peer, site.peer)
            for child in wiring.children
            for site in child.sites
        }
        self._children = wiring.children
        self._tasks = {site.peer: child.task for child in wiring.children for site in child.sites}
        self.sent: dict[TaskName, int] = dict.fromkeys((each.task for each in wiring.children), 0)
        """Segments that were put for each child; read by any thread."""
        self._queue: deque[_Pending] = deque()
        self._back: deque[_Pending] = deque()
        self._back_segments = 0
        self._sends_back = {
            site.peer: child.task for child in wiring.children if child.back for site in child.sites
        }
        self._helpers: dict[TaskName, int] = defaultdict(int)
        """How many others may help before one here gets more, for each child. Tasks of one thread
        take turns, so whoever is here has found nothing whenever a batch has left."""
        self._places = {child.task: _places(child, wiring) for child in wiring.children}
        self._turns: dict[TaskName | None, int] = defaultdict(lambda: wiring.rank)
        """Whose turn it is, for each child: one turn for all would give some peers nothing."""

    def __len__(self) -> int:
        return len(self._queue)

    def waits_for(self) -> tuple[TaskName, ...]:
        """Tasks that have not taken what was put first; from any thread."""
        first = tuple(self._queue)[:1]
        return tuple({self._tasks[each.sites[0].peer] for each in first})

    def waiting_roots(self) -> list[Numbers]:
        """The roots of the batches that nobody has taken, as far as they have any; from any
        thread."""
        items = [each.item for each in (*tuple(self._queue), *tuple(self._back))]
        columns = [each.roots for each in items if isinstance(each, Batch | Partial)]
        return [each for each in columns if each is not None]

    def put(self, child: ChildTask, batch: Batch) -> None:
        """To any peer of the child task."""
        if len(batch):
            self._append(_Pending(batch, child.sites, child.task))

    def put_to(self, site: Site, item: Sendable) -> None:
        """To exactly this peer."""
        self._append(_Pending(item, (site,)))

    def _append(self, pending: _Pending) -> None:
        self.sent[self._tasks[pending.sites[0].peer]] += _size(pending)
        back = self._sends_back.get(pending.sites[0].peer)
        if back is None:
            self._queue.append(pending)
            return
        self._back.append(pending)
        self._back_segments += _size(pending)
        if self._back_segments > BACK_SEGMENTS_MAX:
            raise UserError(
                f"more than {BACK_SEGMENTS_MAX:,} segments wait to go back to {back}: each becomes "
                "several in the loop; let fewer go back, or give the inputs a smaller maxPending"
            )

    def broadcast(self, control: Control, to: Container[TaskName] | None = None) -> None:
        """To every peer downstream, or every one of these tasks, behind what was put before."""
        for child in self._children:
            if not child.back and (to is None or child.task in to):
                for site in child.sites:
                    self.put_to(site, control)

    def take_unsent(self) -> list[tuple[TaskName, Batch]]:
        """Batches that nobody has taken, in order, each with the child task it goes to. They are
        the caller's from now on: the outbox is empty, so that asking twice gives nothing twice."""
        queue, self._queue = self._queue, deque()
        return [
            (self._tasks[pending.sites[0].peer], pending.item)
            for pending in queue
            if isinstance(pending.item, Batch)
        ]

    def drain(self, more: bool = False) -> bool:
        """Hand over what can be handed over; True when nothing is left but what goes back. `more`:
        another batch is about to be put."""
        while self._back and self._offer(self._back[0], more):
            self._back_segments -= _size(self._back.popleft())
        while self._queue:
            pending = self._queue[0]
            if not self._offer(pending, more):
                return False
            self._queue.popleft()
        return True

    def _offer(self, pending: _Pending, more: bool) -> bool:
        sites = pending.sites
        if len(sites) == 1:
            site = sites[0]
            return self._transport.send(site.group, self._channels[site.peer], pending.item, more)
        assert pending.child is not None, "what may go to several peers is for a child"
        near, far = self._places[pending.child]
        if not near or not far:
            return self._offer_in_turn(pending, sites, more)
        helpers = self._helpers[pending.child]
        if not helpers:
            if self._offer_in_turn(pending, near, more, Load.HUNGRY):
                return True
            helpers = len(far)
        if self._offer_in_turn(pending, far, more, Load.HUNGRY):
            self._helpers[pending.child] = helpers - 1
            return True
        self._helpers[pending.child] = 0
        return self._offer_in_turn(pending, near, more, Load.BUSY)

    def _offer_in_turn(
        self, pending: _Pending, sites: tuple[Site, ...], more: bool, most: Load = Load.BEHIND
    ) -> bool:
        turn = self._turns[pending.child]
        for step in range(len(sites)):
            site = sites[(turn + step) % len(sites)]
            channel = self._channels[site.peer]
            if most < Load.BEHIND and self._transport.load(site.group, channel) > most:
                continue
            if self._transport.send(site.group, channel, pending.item, more):
                self._turns[pending.child] = turn + step + 1
                return True
        return False


def _places(child: ChildTask, wiring: Wiring) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
    """The peers of a child in this process, and in others. What goes back in a loop has no choice
    to wait for: the loop would come to rest."""
    stays = wiring.prefers_near and not child.back
    near = tuple(site for site in child.sites if stays and site.group == wiring.me.group)
    return near, tuple(site for site in child.sites if site not in near)


class _Pending(msgspec.Struct):
    item: Sendable
    sites: tuple[Site, ...]
    """One of them must take it."""
    child: TaskName | None = None
    """Whose peers take turns; None when there is one site."""


def _size(pending: _Pending) -> int:
    return 0 if isinstance(pending.item, Control) else len(pending.item)


# --- which peer of a child ----------------------------------------------------------------------


def put_to_child(
    outbox: Outbox, groupings: Groupings, child: ChildTask, batch: Batch, hashes: U64 | None = None
) -> None:
    """Put a batch into the outbox: for any peer of the child, or split by the slot of each
    segment's group or id.

    Args:
        groupings: of the children that group.
        hashes: of the group keys, if they are known.
    """
    count = len(child.sites)
    slots = slots_of(groupings, child, batch, hashes) if count > 1 else None
    if slots is None:
        outbox.put(child, batch)
        return
    for slot, site in enumerate(child.sites):
        mine = (slots == slot).nonzero()[0]
        if len(mine):
            outbox.put_to(site, batch.take(mine))


def slots_of(
    groupings: Groupings, child: ChildTask, batch: Batch, hashes: U64 | None
) -> Indices | None:
    """For each segment the slot of the peer that gets it; None: any peer may."""
    if hashes is not None:
        return slots_of_shards(hashes, len(child.sites))
    grouping = groupings.get(child.task)
    if grouping is not None:
        return grouping.slots_of(batch.segments, len(child.sites))
    if child.by_id and batch.ids is not None:
        return slots_of_shards(mix(array_of(batch.ids).copy()), len(child.sites))
    return None
