"""What has come to a task from each of the tasks upstream, where that is kept apart; of a processor
until the processor takes it (`Edges`).

A processor may leave segments in its inbox, as one that joins does until it has one side. Those
stay here, unacked: they are held like all that a task works on, and are read again when the job is
allocated anew. Other edges go on meanwhile. An edge of which nothing was taken rests until
something has happened that the processor may have waited for. It holds so many segments; then no
more of it is taken from the inbox of the peer, and its senders are refused.

Control items follow from all that came before them on their edge, so they wait behind that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import field

from onyx.base.runs import Numbers
from onyx.base.seams import Clock
from onyx.flow.batch import Batch, by_format
from onyx.ids import PeerId, TaskName
from onyx.transport.interface import Control, Delivery

LEFT_MAX = 8_192
"""With so many segments of an edge that the processor has left, no more of it is taken."""

TRIED_EVERY_S = 0.1
"""A processor that waits for time to pass gets what it has left as often."""

RESTS = 9
"""An edge rests for so many times as long as it took to find that nothing of it is taken."""

Sent = tuple[PeerId, Control]


class Edges:
    """The edges of a processor on one peer, in one allocation version. Not thread-safe, but for
    `waiting_roots` and `resting`."""

    def __init__(
        self, parents: Sequence[TaskName], upstream: Mapping[PeerId, TaskName], clock: Clock
    ) -> None:
        """
        Args:
            parents: the tasks upstream, by ordinal.
            upstream: their peers, each with its task.
        """
        self._edges = {
            task: _Edge(task, frozenset(peer for peer, its in upstream.items() if its == task))
            for task in parents
        }
        self._turns = deque(self._edges.values())
        self._first = self._turns[0]
        """Gets what comes back in a loop as well."""
        self._upstream = upstream
        self._clock = clock

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """What the inbox has given."""
        for delivery in deliveries:
            source, item = delivery.channel.source, delivery.item
            edge = self._edge(self._upstream.get(source))
            if isinstance(item, Control):
                edge.queue.append((source, item))
                continue
            assert isinstance(item, Batch), "nobody folds what a processor gets"
            edge.queue.append(item)
            edge.waiting += len(item)
            edge.grown = True

    def next(self, moves: int) -> Batch | None:
        """The next batch that the processor should get, of each edge in turn.

        Args:
            moves: how much the processor has done; more than before may be what an edge waits for.
        """
        now_s = self._clock.monotonic_s()
        return self._next(now_s, lambda edge: edge.is_ready(moves, now_s))

    def next_due(self) -> Batch | None:
        """The next batch that was left some time ago, likewise."""
        now_s = self._clock.monotonic_s()
        return self._next(now_s, lambda edge: edge.is_due(now_s))

    def _next(self, now_s: float, fits: Callable[[_Edge], bool]) -> Batch | None:
        for _ in range(len(self._turns)):
            edge = self._turns[0]
            self._turns.rotate(-1)
            if fits(edge):
                return edge.take(now_s)
        return None

    def settle(self, task: str | None, left: Batch | None, moves: int, took: bool) -> None:
        """The processor has had a batch of this task.

        Args:
            left: what it has left of it.
            took: whether it has taken or made something.
        """
        edge = self._edge(task)
        edge.rests, edge.given = left is not None and not took, 0
        if left is None:
            return
        edge.queue.appendleft(left)
        edge.waiting += len(left)
        if edge.rests:
            now_s = self._clock.monotonic_s()
            edge.not_before_s = now_s + RESTS * (now_s - edge.tried_s)
            edge.tried_s, edge.moves = now_s, moves

    def _edge(self, task: str | None) -> _Edge:
        return self._first if task is None else self._edges[TaskName(task)]

    def take_controls(self) -> list[Sent]:
        """The control items before which everything has been processed."""
        found: list[Sent] = []
        for edge in self._edges.values():
            while edge.queue and not isinstance(item := edge.queue[0], Batch):
                found.append(item)
                edge.queue.popleft()
        return found

    @property
    def full(self) -> frozenset[PeerId]:
        """Whoever sends to an edge that rests and holds what it may."""
        edges = self._edges.values()
        senders = (each.senders for each in edges if each.rests and each.waiting >= LEFT_MAX)
        return frozenset().union(*senders)

    @property
    def resting(self) -> dict[TaskName, int]:
        """The tasks of which the processor has left segments, with how many wait; nothing while
        it takes some of another one."""
        waiting = {
            each.task: each.waiting + each.given for each in self._edges.values() if each.rests
        }
        busy = any(each.waiting and not each.rests for each in self._edges.values())
        return {} if busy else waiting

    def batches(self) -> Iterator[Batch]:
        """All that waits."""
        for edge in self._edges.values():
            yield from (each for each in edge.queue if isinstance(each, Batch))

    def waiting_roots(self) -> list[Numbers]:
        """The roots of what waits; from any thread."""
        batches = [each for edge in self._edges.values() for each in tuple(edge.queue)]
        return [
            each.roots for each in batches if isinstance(each, Batch) and each.roots is not None
        ]


class _Edge(msgspec.Struct):
    task: TaskName
    senders: frozenset[PeerId]
    queue: deque[Batch | Sent] = field(default_factory=deque)
    waiting: int = 0
    """Segments in the queue."""
    given: int = 0
    """Segments that the processor has now."""
    rests: bool = False
    """Nothing was taken of it at the last try."""
    moves: int = 0
    """What the processor had done by then."""
    tried_s: float = 0.0
    not_before_s: float = 0.0
    """When it has rested."""
    grown: bool = False
    """Whether something has come since then."""

    def is_ready(self, moves: int, now_s: float) -> bool:
        """Whether the processor should get what is here: it is new, or may have been waited for."""
        if not self.rests:
            return self.has_batch
        changed = self.grown or moves != self.moves
        return changed and now_s >= self.not_before_s and self.has_batch

    def is_due(self, now_s: float) -> bool:
        """Whether the processor should get it although nothing has changed but the time."""
        return now_s >= self.tried_s + TRIED_EVERY_S and self.has_batch

    @property
    def has_batch(self) -> bool:
        """Whether a batch is what is next here."""
        return bool(self.queue) and isinstance(self.queue[0], Batch)

    def take(self, now_s: float) -> Batch:
        """All before the next control item, as far as one batch holds it."""
        batches: list[Batch] = []
        while self.queue and isinstance(item := self.queue[0], Batch):
            batches.append(item)
            self.queue.popleft()
        first, *others = by_format(batches)
        self.queue.extendleft(reversed(others))
        self.waiting -= len(first)
        self.given = len(first)
        self.tried_s, self.grown = now_s, False
        first.upstream = self.task
        return first


def read_edges(
    edges: Edges, moves: int, take: Callable[[frozenset[PeerId]], Iterable[Delivery]]
) -> tuple[Batch | None, list[Sent]]:
    """The next batch for a processor; or else control items behind all that has been processed.

    Args:
        moves: as `Edges.next`.
        take: takes what waits in the inbox, but for what comes from these peers.
    """
    batch = edges.next(moves)
    if batch is None:
        edges.add(take(edges.full))
        batch = edges.next(moves) or edges.next_due()
    return batch, [] if batch is not None else edges.take_controls()


def batches_apart(
    deliveries: Iterable[Delivery], upstream: Mapping[PeerId, TaskName]
) -> Iterator[Batch]:
    """The batches among what was received, each with its parent task.

    Args:
        upstream: peers of the tasks above, each with its task.
    """
    for delivery in deliveries:
        if isinstance(delivery.item, Batch):
            delivery.item.upstream = upstream[delivery.channel.source]
            yield delivery.item
