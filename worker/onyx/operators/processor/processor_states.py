"""The processor of one task on one peer: what the task keeps, in place of windows.

What a processor offers goes into the state log with what it has saved, one moment of it: the state
is saved when a chunk is cut, which is between two batches. So the results of a batch are together
in one chunk, whatever the outbox refuses meanwhile, and a crash never finds half of them.

An item that makes more than is kept in memory (`unfinished`) is in no batch. It is taken into the
log, and nothing else is given to the processor before it is finished: what it makes is sent page by
page, like what fires at one moment.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import cycle
from typing import Any, Final

from onyx.base.seams import Clock
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.functions.returning import collecting_nothing
from onyx.ids import TaskName
from onyx.keystate.extents import Extent, Number
from onyx.keystate.pages import PENDING, Emission, Page, Pages
from onyx.keystate.records import Record, Records
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.operators.processor.calls import MADE_MAX, Calls
from onyx.operators.processor.definition import Parent, Processing
from onyx.operators.processor.snapshot import (
    ProcessorSnapshot,
    Sent,
    Unfinished,
    count_of,
    first_segments_of,
    without,
)
from onyx.operators.processor.turns import Takes, Turns, Worked
from onyx.program.operator import Operator
from onyx.reports.measures import StateMeasures

TRIED_EVERY_MS = 100
"""Time between two calls of `try_process` while nothing comes."""
RESTS = 9
"""A chunk waits for so many times as long as it takes a processor to save its state."""
MADE_AT_ONCE = 1_024
"""So many of what a processor makes go into one shard; then it is the turn of the next one."""
ALL: Final = -1
"""In place of an ordinal: all has ended, and `complete` is done."""


class ProcessorStates(Operator):
    """The processor, and what it has saved: all of an operator but what it does with a batch."""

    def __init__(
        self,
        its: Processing,
        begin: Callable[[], Calls],
        snapshot: ProcessorSnapshot,
        own: Sequence[int],
        clock: Clock,
        ended: Callable[[], Collection[str]],
        durable: bool = True,
    ) -> None:
        """
        Args:
            begin: makes a processor that has begun.
            own: the shards of the peer.
            clock: of the process.
            ended: the sources that have, as far as is known.
            durable: whether whoever takes over goes on from what was recorded last.
        """
        self.its = its
        self._durable = durable
        self._snapshot = snapshot
        self._turns = Turns(its, begin, snapshot, durable, self._save)
        calls = self._turns.calls
        self._shards = cycle(own or [0])
        """Where what is made goes, in turn."""
        self._clock = clock
        self._ended = ended
        self._whole = not calls.processor.saves_changes
        self._saves_between = calls.processor.completes_in_pages
        self._tries = calls.overrides("try_process")
        self._next_try_ms = 0
        self._rest_s = 0.0
        self._called = False
        """Whether something was called since the state was saved."""
        self._is_inside = False
        """Whether the processor is in the middle of an item, and cannot save its state."""
        self._moves = 0

    @property
    def moves(self) -> int:
        """How often it has taken or offered something, or heard of something."""
        return self._moves

    # What is called.

    def process(self, ordinal: int, items: Sequence[Any], takes: Takes) -> Worked:
        """Have items processed, as `Turns.take`."""
        assert not self.unfinished, "an unfinished item is finished before anything else is done"
        if self._turns.wants_save:
            self._save()
        made: list[Any] = []
        done = True
        if self._tries:
            with collecting_nothing():
                done, made = self._try()
            self._next_try_ms = self._clock.wall_ms() + TRIED_EVERY_MS
        self._called = True
        worked = self._turns.take(ordinal, items, takes) if done else Worked(0, [])
        made += worked.made
        self._moves += bool(worked.taken or made)
        return worked._replace(made=[(each.shard, each.segments) for each in self._made(made)])

    def _try(self) -> tuple[bool, list[Any]]:
        """What `try_process` makes, and whether it is done with that: if state may be saved between
        two calls, it goes on with the next batch when it has made much."""
        if not self._saves_between:
            return True, self._all("try_process")
        made: list[Any] = []
        for done, offered in self._turns.calls.each("try_process"):
            made += offered
            if not done and count_of(made) >= MADE_MAX:
                self._save()  # a call that goes on cannot be done again
                return False, made
        self._turns.did("try_process", (), made)
        return True, made

    @property
    def unfinished(self) -> bool:
        """Whether an item is to be finished before anything else is done."""
        return bool(self._snapshot.unfinished)

    def _finish(self, its: Unfinished) -> Pages:
        """What an item makes that has not been sent yet."""
        if self._durable and self._called:
            self._save()
        self._is_inside = True
        sent, made_so_far = its.sent, Sent()
        for offered in self._turns.calls.work_off(its.ordinal, its.item):
            made = offered
            before = min(sent.segments - made_so_far.segments, count_of(made))
            if before > 0:
                made_so_far = made_so_far.and_then(first_segments_of(made, before))
                made = without(made, before)
                if made_so_far.segments == sent.segments and made_so_far != sent:
                    raise self._turns.differs("process makes")
            if not made:
                yield PENDING
                continue
            if self._durable:
                sent = made_so_far = sent.and_then(made)
                self._snapshot.begin_item(its._replace(sent=sent))
            yield self._page(made)
        if made_so_far.segments < sent.segments:
            raise self._turns.differs("process makes")
        assert self._is_inside, "nothing else was done meanwhile"
        self._is_inside, self._called = False, True
        self._snapshot.end_item(its.shard)
        if self._durable:
            self._save()  # what this item has made is not kept, to do it again
        self._moves += 1
        yield [Emission(its.shard, [])]  # so that the end is recorded

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` is due next."""
        if self._snapshot.has_ended(ALL):
            return None
        if self.unfinished or self._ended_edges():
            return 0
        return self._next_try_ms if self._tries else None

    def tick(self, now_ms: int) -> Pages:
        """Items that are not finished; parents that have ended; and the call that needs no input.
        What that changes without offering anything is saved with the next chunk that there is."""
        for each in self._snapshot.unfinished:
            yield from self._finish(each)
        for ordinal in self._ended_edges():
            yield from self._edge(ordinal)
        if self._tries and now_ms >= self._next_try_ms:
            self._next_try_ms = now_ms + TRIED_EVERY_MS
            made = yield from self._pages("try_process")
            if made:
                yield self._page(made)

    def advance(self, watermark: Number) -> Pages:
        """Event time has come to here."""
        if self._turns.calls.overrides("try_process_watermark") and not self._snapshot.has_ended(
            ALL
        ):
            yield self._page(self._all("try_process_watermark", int(watermark)))

    def complete(self, shards: Collection[int], now_ms: int) -> Pages:
        """Nothing more comes. Done before, it is done: what has ended is in the log with what was
        made at the end."""
        for ordinal in range(len(self.its.parents)):
            if not self._snapshot.has_ended(ordinal):
                yield from self._edge(ordinal)
        if self._snapshot.has_ended(ALL):
            return
        made = yield from self._pages("complete")
        self._snapshot.clear()
        self._snapshot.end(ALL)
        yield self._page(made)

    def why_left(self, waiting: Mapping[TaskName, int]) -> str:
        """What the processor may wait for, in words.

        Args:
            waiting: the tasks of which it leaves segments in its inbox, with how many.
        """
        going = [
            each
            for ordinal, each in enumerate(self.its.parents)
            if not self._snapshot.has_ended(ordinal)
        ]
        return _why_left(self.its.name, going, waiting)

    def close(self) -> None:
        """The processor ends."""
        self._turns.calls.close()

    def _ended_edges(self) -> list[int]:
        ended, known = self._ended(), self._snapshot
        if not ended:
            return []
        return [
            ordinal
            for ordinal, parent in enumerate(self.its.parents)
            if parent.sources.issubset(ended) and not known.has_ended(ordinal)
        ]

    def _edge(self, ordinal: int) -> Pages:
        made = yield from self._pages("complete_edge", ordinal)
        self._snapshot.end(ordinal)
        yield self._page(made) or [Emission(next(self._shards), [])]  # so that the end is recorded

    def _pages(self, method: str, *arguments: Any) -> Generator[Page, None, list[Any]]:
        """What a method makes, page by page where it need not be there at once: if state may be
        saved between two calls, or nothing is kept of it. Returns what it has made last."""
        if self._durable and not self._saves_between:
            return self._all(method, *arguments)
        self._called, paged, made = True, False, list[Any]()
        self._is_inside = not self._saves_between
        for done, made in self._turns.calls.each(method, *arguments):
            self._moves += bool(made) or method != "try_process"
            if made and not done:
                yield self._page(made)
                self._called = paged = True
        self._is_inside = False
        if not paged:
            self._turns.did(method, arguments, made)
        elif method != "complete":
            self._save()  # what was sent is not kept, to do it again
        return made

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        self._called = True
        made = self._turns.all_of(method, *arguments)
        self._moves += bool(made) or method != "try_process"
        return made

    def _page(self, items: list[Any]) -> Page:
        return list(self._made(items))

    def _made(self, items: list[Any]) -> list[Emission]:
        return [Emission(next(self._shards), part) for part in _parts(items)]

    def measures(self) -> StateMeasures:
        """The entries that it has saved."""
        return StateMeasures(groups=len(self._snapshot))

    # What is recorded and restored.

    def take_changes(self) -> Records:
        """What has changed since the last call, by shard. The processor saves its state."""
        if self._is_inside:
            return self._snapshot.take_changes()  # with what was saved before the item
        if self._called and not self._snapshot.has_ended(ALL):
            self._save()
        return self._snapshot.take_changes()

    def _save(self) -> None:
        assert not self._is_inside, "in the middle of an item a processor has no state to save"
        begun_s = self._clock.monotonic_s()
        self._snapshot.begin()
        self._turns.calls.save(self._snapshot.take)
        self._snapshot.finish(self._whole)
        self._snapshot.trim()
        self._turns.saved()
        self._called = False
        self._rest_s = RESTS * (self._clock.monotonic_s() - begun_s)

    @property
    def rest_s(self) -> float:
        """How long the next chunk should wait: a tenth of the time is for saving, at most."""
        return self._rest_s

    def freeze(self, shards: Collection[int]) -> Callable[[int], list[Record]]:
        """What gives the whole state of each of these shards, as it was saved last."""
        return self._snapshot.freeze(shards)

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records to a shard."""
        self._snapshot.restore(shard, records)

    def restored(self) -> None:
        """All shards are restored: the processor gets what was saved."""
        self._snapshot.restored()
        # Nobody reads what is made for a shard that has ended: it was another processor's.
        left = [shard for shard in self._snapshot.shards if not self._snapshot.is_over(shard, ALL)]
        if left:
            self._shards = cycle(left)
        self._turns.calls.restore(self._snapshot.entries())

    def query(
        self, name: str, asked: Selection = EVERYTHING, extents_max: int | None = None
    ) -> list[Extent]:
        """What it has saved last, by key."""
        return self._snapshot.query(asked, extents_max)


def _parts(items: list[Any]) -> Iterator[Segments]:
    """Dicts so many at a time, columns as they are."""
    if items and isinstance(items[0], Columns):
        yield from items
        return
    for first in range(0, len(items), MADE_AT_ONCE):
        yield items[first : first + MADE_AT_ONCE]


def _why_left(name: str, parents: Sequence[Parent], waiting: Mapping[TaskName, int]) -> str:
    """What a processor with this name may wait for, to which more may come from these parents."""
    left = _and(f"{count:,} segments of {task}" for task, count in waiting.items())
    said = f"processor {name} leaves {left} in its inbox"
    others = [each for each in parents if each.task not in waiting]
    if not others:
        return (
            f"{said}, and nothing more comes to it from another task: it waits for ever, unless "
            "process takes them or the time is what it waits for"
        )
    said += f" and waits for more of {_and(each.task for each in others)}"
    awaited = frozenset[str]().union(*(each.sources for each in others))
    held = frozenset[str]().union(*(each.sources for each in parents if each.task in waiting))
    if awaited & held:
        said += (
            f", which comes from {_and(sorted(awaited & held))} too: what is left there keeps that "
            "from reading on, so they may wait for each other for ever (take what comes, and keep "
            "it in the state)"
        )
    return said


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)
