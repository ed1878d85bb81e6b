"""The state of one task on one peer, in one allocation version, and how it gets durable.

Invariant: three things are never durable apart: that a segment has been applied, what it changed,
and what a trigger emitted because of it. They go into one chunk of the state log. Only when the
chunk is durable are the segments acked and the emissions sent. Meanwhile the task goes on with the
next batches; one chunk is on its way at a time, so chunks grow with the load.

An answer about the state is made when it is asked for, and given when the chunk is durable that has
the last change before it. So it is one moment of the peer, and no crash takes back what is in it.
When another peer may have taken over, nobody knows any more: whoever asked asks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from onyx.base.runs import Numbers, array_of
from onyx.base.seams import Clock
from onyx.errors import Unavailable
from onyx.flow.batch import EncodedRun, Segments
from onyx.keystate.buckets import Holder
from onyx.keystate.groups import Shards
from onyx.keystate.pages import Pages
from onyx.ledger.applied import Mask
from onyx.ledger.lineage import PARTITION_SHIFT, POSITIONS_MAX, first_attempts, fold
from onyx.reports.measures import StateMeasures
from onyx.settings import StateSettings
from onyx.task.state.chunks import ChunkPace, ChunkWriter, Columns, PendingChunk
from onyx.task.state.emissions import Emissions, run_of
from onyx.task.state.held_acks import HeldAcks
from onyx.task.state.task_state import TaskState, Tracked
from onyx.windows.watermarks import Mark, moved


class Moment(msgspec.Struct):
    """What fires at one moment, page by page."""

    runs: Pages
    through: Callable[[], None]
    """To be called at the end."""
    since_s: float


class StateKeeper:
    """Keeps the state of a task on a peer. Not thread-safe. Implements `Keeper`."""

    def __init__(
        self,
        state: TaskState,
        shards: Shards,
        emissions: Emissions,
        writer: ChunkWriter,
        clock: Clock,
        settings: StateSettings,
        held_acks: HeldAcks | None = None,
        holder: Holder | None = None,
    ) -> None:
        """
        Args:
            held_acks: where requests may wait for what the task makes.
            holder: has the states of groups.
        """
        self._holder = holder
        self.state = state
        self.operator, self.closed, self.shards = state.operator, state.closed, state.shards
        self.writer = writer
        self.clock = clock
        self.settings = settings
        self.shard_of = shards
        self.emissions = emissions
        self.firing: Moment | None = None
        """What fires at one moment and is not through."""
        self.timers_from_s = 0.0
        """No timer fires before: after several pages there is as long for reading as they took."""
        self.ended = False
        """Everything has fired for the last time, and arrived."""
        self.answers = HeldAnswers()
        self.held_acks = held_acks
        self._again = False
        """Whether something that was applied before waits to be acked."""
        self._awaited = AwaitedSegments()
        self._values: list[Columns] = []
        self._pace = ChunkPace(clock, settings)
        self._marks: deque[tuple[int, Mark]] = deque()
        """Where event time was when so many emissions had been added."""
        self._settled: dict[int, int] = {}

    @property
    def blocked(self) -> bool:
        """Whether nothing more should be read: some of what fires at one moment is still to be
        carried out, an item of a processor to be finished, or too much was emitted that has not
        arrived."""
        return self.firing is not None or self.operator.unfinished or self.emissions.full

    def measures(self) -> StateMeasures:
        """What is known of the state without a look at it. From any thread; raises as the
        operator's."""
        spilled = None if self._holder is None else self._holder.spilled
        return StateMeasures(self.writer.size_bytes, spilled=spilled) + self.operator.measures()

    @property
    def obstacle(self) -> str:
        """Why the last chunk could not be written yet; empty if it could."""
        return self.writer.obstacle

    def leave(self) -> None:
        """The task ends, or its job is allocated anew: answers that wait are not given."""
        self.answers.give_up()
        self.operator.close()

    # --- while a batch is worked on -------------------------------------------------------------

    def fresh(self, batch: Tracked, withdrawn: Sequence[int]) -> Mask | None:
        """Which segments have not been applied yet; from now on they count as applied. None: all
        of them.

        Args:
            withdrawn: segments that are not to be applied.
        """
        if self._awaited and batch.ids is not None:
            self._awaited.arrived(batch.ids)
        news = self.state.fresh(batch, withdrawn)
        if self.held_acks is not None and news is not None:
            self._again |= len(news) - int(news.sum()) > len(withdrawn)
        return news

    def wait_for(self, roots: Numbers, ids: Numbers) -> None:
        """Segments have come in a form that cannot be used, and will come again. Event time stands
        still until then: they are not late because of that."""
        self._awaited.add(roots, ids)

    @property
    def may_advance(self) -> bool:
        """Whether event time may go on: all that came before has come to its end."""
        return self.firing is None and not self._awaited and not self.operator.unfinished

    def unapplied(self, batch: Tracked) -> Mask | None:
        """Which segments have not been applied yet; nothing changes. None: all of them."""
        return self.state.unapplied(batch)

    def has_seen(self, shard: int, value: Any) -> bool:
        """Whether `first_seen` would say that a value is not new; nothing changes."""
        return self.state.has_seen(shard, value)

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """By the task's uniqueness key: for each segment, with its shard, whether it is new."""
        self.changed(len(values))
        return self.state.first_seen(shards, values)

    def withhold(self, roots: Numbers, values: Numbers) -> None:
        """Ack these when everything so far is durable."""
        if len(roots):
            self._values.append(fold(roots, values))
            self.changed(len(roots))

    def waiting_roots(self) -> list[Numbers]:
        """The roots of what is withheld; from any thread."""
        values, appending = tuple(self._values), self.writer.current
        held = [] if self.held_acks is None else self.held_acks.waiting_roots()
        return [roots for roots, _ in (*values, *(appending.values if appending else ()))] + held

    def emit(
        self,
        shard: int,
        segments: Segments,
        child: str | None = None,
        encoded: EncodedRun | None = None,
    ) -> None:
        """Send these when everything so far is durable."""
        if len(segments):
            self.emissions.add(shard, run_of(segments, child, encoded))
        self.changed(len(segments))

    def emit_for(self, shard: int, segments: Segments, parents: Numbers) -> None:
        """Send these like `emit`, each made of a segment of the tree with this root."""
        run = run_of(segments, None)
        self.emissions.add(shard, run._replace(parents=array_of(parents)))
        self.changed(len(segments))

    def advance(self, watermark: int) -> Pages:
        """What fires because the watermark of the task has risen to this, if it has."""
        pages = self.state.advance(watermark)
        if pages is None:
            return iter(())
        self.changed(1)
        return pages

    def release(self, mark: Mark) -> Mark | None:
        """How far event time has come for those downstream: as far as all is sent that was emitted
        until then. None: no further.

        Args:
            mark: where the task is, all that fires because of it included.
        """
        mark = moved(mark, self.operator.passed_on)
        if not self._marks or self._marks[-1][1] != mark:
            self._marks.append((self.emissions.added, mark))
        released = None
        while self._marks and self._marks[0][0] <= self.emissions.sent_through:
            released = self._marks.popleft()[1]
        return released

    def take_settled(self) -> dict[int, int]:
        """By shard, positions of emissions below which nothing is sent again, whoever takes over;
        those that have risen."""
        settled, self._settled = self._settled, {}
        return settled

    def complete(self, roots: Numbers) -> None:
        """Trees of emissions are complete."""
        if self.emissions.complete(roots):
            self._pace.settled()

    def forget(self, frontiers: dict[int, int]) -> None:
        """Nothing below these positions of their partitions comes again."""
        if self.state.applied is not None:
            self.state.applied.forget(frontiers)
        if frontiers:
            self.operator.forget(frontiers)
        if self._awaited:
            self._awaited.forget(frontiers)

    def close(self, shard: int) -> None:
        """A shard has fired for the last time."""
        self.state.close(shard)
        self.changed(1)

    def changed(self, segments: int) -> None:
        """Note that so many segments, or firings, have changed the state."""
        self._pace.changed(segments)

    # --- between batches ------------------------------------------------------------------------

    def take_durable(self) -> list[Columns]:
        """What may be acked now. Raises what appending a chunk has raised."""
        durable = self.writer.take_durable()
        if durable is None:
            return [] if self.held_acks is None else self.held_acks.take()
        # Only now: whoever takes over knows what is durable, and would not send again, or send as
        # something else, what had gone out before.
        self.emissions.release(durable.emitted)
        self.answers.durable()
        self._settled |= durable.settled
        if self.held_acks is None:
            return durable.values
        return self.held_acks.hold(durable) + self.held_acks.take()

    def cut(self, idle: bool, at_once: bool = False) -> bool:
        """Begin to write a chunk if one is due and none is on its way; True when one was begun. A
        page of what fires at one moment is due at once, and so is `at_once` whatever there is."""
        at_once |= self.firing is not None
        if self.writer.current is not None or not self._pace.due(idle, at_once):
            return False
        emitted, settled = self.emissions.take_fresh(), self.emissions.take_settled()
        if self.writer.wants_snapshot:
            chunk = self.state.snapshot(emitted, self.emissions)
        else:
            chunk = self.state.changes(emitted, settled)
        self._pace.begun(self.operator.rest_s)
        # All of it at the same moment as the chunk: values of a batch that it does not hold would
        # be acked although the batch is not durable.
        values, self._values = self._values, []
        self.answers.begun()
        again, self._again = self._again, False
        self.writer.begin(
            chunk,
            self.operator.take_files(),
            PendingChunk(values, emitted, settled, again, self.operator.unfinished),
        )
        return True

    def answer(self, held: PendingAnswer, durable: bool, half_applied: bool = False) -> None:
        """Answer a question.

        Args:
            durable: not before everything so far is durable.
            half_applied: a batch has changed the state, and what follows from it is not here yet.
        """
        if durable and (half_applied or not self.durable):
            self.answers.hold(held, changed=half_applied or not self._pace.nothing_waits)
        else:
            held[0].set_result(held[1])

    @property
    def ready_to_fire(self) -> bool:
        """Whether there is room for more of what fires at one moment: the last page is on its way
        to the log, and not too much waits to arrive."""
        return self._pace.nothing_waits and not self.emissions.full

    def wants_flush(self) -> bool:
        """Whether much was emitted that outputs should make durable now, or a request waits for
        it; true once for what there is."""
        wanted = self.held_acks is not None and self.held_acks.wants_flush()
        return self.emissions.wants_flush(ends=False) or wanted

    def come_to_rest(self) -> bool:
        """Write what the log does not say once nothing that was emitted is in flight; whether the
        log says so."""
        if self.firing is not None or self.operator.unfinished or self.emissions.unsettled:
            return False
        if not self._pace.rests():
            self.cut(idle=True, at_once=True)
            return False
        return self.writer.current is None

    @property
    def durable(self) -> bool:
        """Whether nothing waits to be written."""
        return self.writer.current is None and self._pace.nothing_waits


# --- what waits ---------------------------------------------------------------------------------


class AwaitedSegments:
    """Segments that come again before event time goes on (`StateKeeper.wait_for`): their ids, each
    with its root. They are few: those of a batch, after a crash."""

    def __init__(self) -> None:
        self._roots: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._roots)

    def add(self, roots: Numbers, ids: Numbers) -> None:
        """Wait for these: they have come in a form that cannot be used, and come again."""
        pairs = zip(array_of(ids).tolist(), array_of(first_attempts(roots)).tolist(), strict=True)
        self._roots.update(pairs)

    def arrived(self, ids: Numbers) -> None:
        """Segments have come, among which some of these may be."""
        for each in array_of(ids).tolist():
            self._roots.pop(each, None)

    def forget(self, frontiers: Mapping[int, int]) -> None:
        """Nothing below these positions of their partitions comes again, though it was to: the
        function of a task has not made it again."""
        self._roots = {
            id: root
            for id, root in self._roots.items()
            if root & (POSITIONS_MAX - 1) >= frontiers.get(root >> PARTITION_SHIFT, 0)
        }


PendingAnswer = tuple["Future[Any]", Any]
"""Who waits, and the answer, to a client or to another task. Bounded by the questions that a group
admits at once, and by the tasks that look the state up."""


class HeldAnswers:
    """Not thread-safe. One chunk is on its way at a time."""

    def __init__(self) -> None:
        self._of_next: list[PendingAnswer] = []
        self._on_its_way: list[PendingAnswer] = []

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._of_next or self._on_its_way)

    def hold(self, held: PendingAnswer, changed: bool) -> None:
        """Give an answer later.

        Args:
            changed: it tells of something that is not in the chunk on its way.
        """
        (self._of_next if changed else self._on_its_way).append(held)

    def begun(self) -> None:
        """A chunk with all changes is on its way."""
        self._on_its_way += self._of_next
        self._of_next = []

    def durable(self) -> None:
        """The chunk on its way is durable."""
        held, self._on_its_way = self._on_its_way, []
        for future, answer in held:
            future.set_result(answer)

    def give_up(self) -> None:
        """Somebody else may have the state now."""
        held, self._on_its_way, self._of_next = [*self._on_its_way, *self._of_next], [], []
        for future, _ in held:
            future.set_exception(Unavailable("the job is being allocated anew"))
