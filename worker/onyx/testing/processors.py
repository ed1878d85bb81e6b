"""Runs a processor in every way that the engine may, and says in which one it is wrong.

A processor that is right with an outbox that takes everything may be wrong under load, or after a
crash. So the same input is given to it with outboxes that refuse after each item, in inboxes of
different sizes, with state saved between any two calls at which the engine may save it, restored in
a new object, and split among several peers:

    verify_processor(Totals, input=[{"user": "a", "n": 1}], output=[{"user": "a", "sum": 1}])

Snapshots, outboxes and calls are those of the engine. What is not the engine's is only the order in
which they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any, Literal

import pyarrow as pa

from onyx.base.seams import SystemClock
from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.keystate.buckets import InMemory
from onyx.keystate.records import Record
from onyx.operators.processor.calls import Calls, outbox_of
from onyx.operators.processor.snapshot import ProcessorSnapshot
from onyx.processors import Context, Processor

Item = tuple[int, Any]
"""An ordinal, and what comes from there."""
_MANY = 1_024
_TRIES_MAX = 100
"""So often a processor gets what it has left when nothing else comes any more."""
_ROUND_TRIPS = ("never", "each batch", "each batch, on other peers")


class Watermark(int):
    """Event time, in milliseconds since 1970, as an item of the input."""


@dataclass(frozen=True)
class Way:
    """A way in which the engine may run a processor."""

    outbox: int
    """How many items it takes before it refuses."""
    inbox: int
    """How many items come at once, at most."""
    restored: str
    """When the state is saved, and restored in new processors."""
    peers: int

    def __str__(self) -> str:
        return (
            f"an outbox of {self.outbox}, {self.inbox} items at once, on {self.peers} "
            f"peer{'s' if self.peers > 1 else ''}, restored: {self.restored}"
        )


def verify_processor(
    make: Callable[[], Processor],
    *,
    input: Iterable[Any],
    output: Iterable[Any],
    ordered: bool = True,
    group_by: Callable[[Any], Any] | None = None,
    parents: Sequence[str] = ("input",),
    batch_format: Literal["dicts", "arrow"] = "dicts",
) -> None:
    """Check that a processor makes of an input what is expected, however it is run.

    Args:
        make: makes the processor: its class, or `lambda: Totals(3)`.
        input: segments, or record batches; `Watermark(ms)` between them. An item that comes from
            another parent than the first is a pair `(ordinal, item)`.
        output: what it is to send, `complete` included.
        ordered: whether in this order. On several peers the order is never looked at.
        group_by: gives the group of a segment, as `groupByFn` does. With it the processor is run on
            several peers too, each with its groups.
        parents: names of the tasks upstream, by ordinal.
        batch_format: of the task. Items are record batches under `arrow`, and rows are compared.

    Raises:
        AssertionError: it makes something else in some way, which the message says; or it raises.
    """
    items, wanted = [_with_ordinal(each) for each in input], _rows(output)
    for way in _ways(group_by is not None):
        bench = _Bench(make, way, parents, batch_format, group_by)
        try:
            found = bench.run(items)
        except UserError as error:
            raise AssertionError(f"with {way}: {error}") from error
        _compare(way, found, wanted, ordered and way.peers == 1)


def _with_ordinal(item: Any) -> Item:
    return item if type(item) is tuple else (0, item)


def _ways(grouped: bool) -> Iterator[Way]:
    """The plainest first: what fails there is no matter of ways."""
    for restored, outbox, inbox in product(_ROUND_TRIPS, (_MANY, 2, 1), (_MANY, 3, 1)):
        peers = 2 if restored == _ROUND_TRIPS[2] else 1
        if peers == 1 or grouped:
            yield Way(outbox, inbox, restored, peers)


class _Bench:
    """The processors of a task on some peers, which come and go."""

    def __init__(
        self,
        make: Callable[[], Processor],
        way: Way,
        parents: Sequence[str],
        batch_format: Literal["dicts", "arrow"],
        group_by: Callable[[Any], Any] | None,
    ) -> None:
        self._make = make
        self._way = way
        self._parents = tuple(parents)
        self._format = batch_format
        self._group_by = group_by
        self._made: list[Any] = []
        self._left: dict[int, list[Any]] = {}
        """What processors have left, by parent."""
        self._peers = [self._new(index, way.peers) for index in range(way.peers)]
        for peer in self._peers:
            peer.calls.restore([])

    def _new(self, index: int, count: int) -> _Peer:
        outbox = outbox_of(self._format, self._way.outbox, self._way.outbox)
        context = Context("job", "processor", index, count, self._parents)
        processor = self._make()
        calls = Calls(processor, type(processor).__name__, outbox, context, SystemClock())
        calls.init()
        own = range(index, SHARDS, count)
        return _Peer(calls, ProcessorSnapshot(own, InMemory()), own)

    def run(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """What is made of an input."""
        for ordinal, batch in _batches(items, self._way.inbox):
            self._all("try_process")
            if isinstance(batch[0], Watermark):
                self._all("try_process_watermark", int(batch[0]))
            else:
                self._process(ordinal, batch)
            self._come_and_go()
        self._complete_edges()
        self._all("try_process")
        self._complete()
        for peer in self._peers:
            peer.calls.close()
        return _rows(self._made)

    def _process(self, ordinal: int, batch: list[Any]) -> bool:
        """What comes from one parent, behind what is left of it; then what is left of others, which
        may have waited for it. Whether something was taken."""
        took = self._process_one(ordinal, batch)
        for other in sorted(self._left):
            took |= other != ordinal and self._process_one(other, [])
        return took

    def _process_one(self, ordinal: int, batch: list[Any]) -> bool:
        given, left = [*self._left.pop(ordinal, []), *batch], list[Any]()
        for index, mine in self._dealt(given):
            turn = self._peers[index].calls.process(ordinal, mine, made_max=0)
            if turn.error is not None:
                raise turn.error
            self._made += turn.made
            left += [*(mine[at] for at, _ in turn.failed), *mine[turn.taken :]]
        if left:
            self._left[ordinal] = left
        return len(left) < len(given)

    def _complete_edges(self) -> None:
        open_edges, tries = list(range(len(self._parents))), 0
        while open_edges:
            for ordinal in [each for each in open_edges if each not in self._left]:
                self._all("complete_edge", ordinal)
                open_edges.remove(ordinal)
                self._come_and_go()
                tries = 0
            took = [self._process(ordinal, []) for ordinal in open_edges]
            if any(took):
                self._come_and_go()
            tries = 0 if any(took) else tries + 1
            if tries > _TRIES_MAX:
                waiting = ", ".join(
                    f"{len(left)} of {self._parents[ordinal]}"
                    for ordinal, left in self._left.items()
                )
                raise UserError(
                    f"the processor leaves items in its inbox ({waiting}) when nothing else comes"
                )
            self._all("try_process")

    def _complete(self) -> None:
        """Where state may be saved between two calls, it is, and the rest is another one's."""
        for index in range(len(self._peers)):
            pages = self._peers[index].calls.until_done("complete")
            in_pages = self._peers[index].calls.processor.completes_in_pages
            for page in pages:
                self._made += page
                if in_pages and page and self._way.restored != "never":
                    self._restore_one(index)
                    self._take(self._peers[index].calls.until_done("complete"))
                    break

    def _restore_one(self, index: int) -> None:
        old, new = self._peers[index], self._new(index, len(self._peers))
        old.save()
        for shard, records in old.records():
            new.snapshot.restore(shard, records)
        new.restored()
        self._peers[index] = new

    def _dealt(self, batch: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        """What each peer gets."""
        if self._group_by is None or len(self._peers) == 1:
            yield 0, batch
            return
        for index, peer in enumerate(self._peers):
            mine = [each for each in batch if shard_of(self._group_by(each)) in peer.own]
            if mine:
                yield index, mine

    def _come_and_go(self) -> None:
        """The state is saved and restored, on other peers if that is the way."""
        if self._way.restored == "never":
            return
        count = len(self._peers)
        if self._way.restored == _ROUND_TRIPS[2]:
            count = count % 3 + 1
        old, self._peers = self._peers, [self._new(index, count) for index in range(count)]
        for peer in old:
            peer.save()
            peer.calls.close()
        for shard, records in chain.from_iterable(peer.records() for peer in old):
            self._peers[shard % count].snapshot.restore(shard, records)
        for peer in self._peers:
            peer.restored()

    def _all(self, method: str, *arguments: Any) -> None:
        for peer in self._peers:
            self._take(peer.calls.until_done(method, *arguments))

    def _take(self, made: Iterable[list[Any]]) -> None:
        self._made += chain.from_iterable(made)


@dataclass(frozen=True)
class _Peer:
    calls: Calls
    snapshot: ProcessorSnapshot
    own: range

    def save(self) -> None:
        """Have the processor save its state, all of which is then recorded."""
        self.snapshot.begin()
        self.calls.save(self.snapshot.take)
        self.snapshot.finish(whole=not self.calls.processor.saves_changes)
        self.snapshot.take_changes()

    def records(self) -> Iterator[tuple[int, list[Record]]]:
        """What was saved, by shard."""
        of_shard = self.snapshot.freeze(self.own)
        for shard in self.own:
            yield shard, of_shard(shard)

    def restored(self) -> None:
        """The processor gets what was saved."""
        self.snapshot.restored()
        self.calls.restore(self.snapshot.entries())


def _batches(items: Sequence[Item], most: int) -> Iterator[tuple[int, list[Any]]]:
    """Items of one parent that come together; a watermark comes alone."""
    batch: list[Any] = []
    before = 0
    for ordinal, item in items:
        alone = isinstance(item, Watermark)
        if batch and (alone or ordinal != before or len(batch) == most):
            yield before, batch
            batch = []
        before = ordinal
        batch.append(item)
        if alone:
            yield ordinal, batch
            batch = []
    if batch:
        yield before, batch


def _rows(made: Iterable[Any]) -> list[dict[str, Any]]:
    """Segments as they are, the rows of columns as segments."""
    found: list[dict[str, Any]] = []
    for each in made:
        if isinstance(each, Columns):
            found += each.record_batch.to_pylist()
        elif isinstance(each, pa.RecordBatch):
            found += each.to_pylist()
        else:
            found.append(each)
    return found


def _compare(way: Way, found: list[Any], wanted: list[Any], ordered: bool) -> None:
    missing, extra = list(wanted), []
    for each in found:
        if each in missing:
            missing.remove(each)
        else:
            extra.append(each)
    if missing or extra:
        raise AssertionError(
            f"with {way}: {_some('missing', missing)}{_some('not expected', extra)}"
            f"({len(found)} made, {len(wanted)} expected)"
        )
    if ordered and found != wanted:
        at = next(n for n, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1])
        raise AssertionError(
            f"with {way}: the order differs from item {at} on: {found[at]}, expected {wanted[at]} "
            "(ordered=False does not look at it)"
        )


def _some(what: str, items: list[Any]) -> str:
    if not items:
        return ""
    more = f" and {len(items) - 3} more" if len(items) > 3 else ""
    return f"{what}: {', '.join(map(str, items[:3]))}{more}; "
