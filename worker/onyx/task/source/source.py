"""All partitions that one peer of an input task owns: turns, room, retries, frontiers, and how fast
they may be read.

The limit of a task (`segmentsPerSecondMax`) is dealt to partitions that have not ended, and each
peer takes its turns for those that it owns. So the parts add up to the limit, without a word
between peers, and what a partition does not use goes to others of its peer. When partitions move,
both owners count them for a moment, but the new one begins with an empty bucket. What an earlier
owner may have sent is read again, and no limit holds for it. Therefore little is reserved ahead
under a limit: that much may be new, and read at once after a crash.

Hooks for each segment name it by `(partition, position)`, the same in every attempt. Only a job
with such a hook pays for looking which positions are meant.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Container, Mapping

import numpy as np
from msgspec.structs import replace

from onyx.base.runs import Numbers, array_of, joined
from onyx.base.seams import Clock
from onyx.errors import contained
from onyx.flow.batch import U64, Batch
from onyx.flow.segment import SegmentFailure
from onyx.ledger.lineage import PARTITION_SHIFT, POSITIONS_MAX, cut, partitions_of, positions_of
from onyx.ledger.pending import InFlightRoots, ReturningPositions
from onyx.ledger.retry_delay import DEFAULT, RetryDelay
from onyx.ledger.returns import Trees
from onyx.ledger.token_bucket import TokenBucket
from onyx.model.job import CatalogEntry
from onyx.model.plugins import may_be_endless
from onyx.plugins.protocol import Behind, Cursor, Input, MeasuredInput
from onyx.program.bad_records import BadRecordFinder
from onyx.program.event_times import SourceTimes
from onyx.program.failure import Failure
from onyx.program.plugin_forms import plugin_reader
from onyx.program.program import Program
from onyx.task.batching import BatchSizing
from onyx.task.measured import OpenPartition
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.task.source.partition import Opener, Partition, pending_of
from onyx.telemetry.catalog import SOURCE_OFFSET, SOURCE_PENDING
from onyx.telemetry.interface import NULL_TASK, TaskMetrics
from onyx.windows.watermarks import IDLE, SILENT, Mark

logger = logging.getLogger("onyx.task")

LOST_LOGGED_EVERY_S = 60.0

RESERVING_MAX = 8
"""Partitions that wait for their reservation at a time: the others are not read yet."""

RESERVED_S = 2.0
"""Reserved ahead under a limit: as much as may be read between two saves by time."""

SAVED_EVERY_SEGMENTS = 16_384
SAVED_AFTER_S = 0.25
"""Frontiers are saved before their time when so many segments are complete, so often at most. What
is complete and not saved is remembered by each task with state, segment by segment."""

GRAIN_S = 0.02
"""A batch waits for the tokens of this time: batches of a few segments cost more than they hold."""


class Source:
    """All partitions that one peer of an input task owns."""

    unknown = ""
    tasks: int | None = None
    """How far it is can be known, by segments (`task.measured.PartSource`)."""
    most_ms: int | None = None
    """Partitions that have come beyond this time wait for others (`channels.alignment`)."""
    held_ms: int | None = None
    """The event time of the first that has waited in the last round, if nothing was read."""

    def __init__(
        self,
        plugin: Input,
        entry: CatalogEntry,
        sizing: BatchSizing,
        clock: Clock,
        partition: type[Partition] = Partition,
        times: SourceTimes | None = None,
        retry_delay: RetryDelay = DEFAULT,
    ) -> None:
        """
        Args:
            partition: how each is read, by the guarantee of the job.
            times: takes notice of event times; None where nobody needs them.
            retry_delay: before a retry that a flow condition asks for.
        """
        self.plugin = plugin
        self.examined: bool = plugin.examined
        """Whether the plugin gives only what can travel, and need not be looked at."""
        self._times = times
        self._bad = BadRecordFinder(entry, plugin, times)
        self._entry = entry
        self._sizing = sizing
        self._clock = clock
        self._limit = ReadLimit(clock)
        self._opener = Opener(plugin, entry, sizing, clock, partition, retry_delay)
        self._gives_up = issubclass(pending_of(entry), ReturningPositions)
        self._turn = 0
        self._next_check_s = 0.0
        self._next_lost_log_s = 0.0
        self.rested_s = math.inf
        """When something has rested long enough to be read again."""
        self._next_checkpoint_s = self._saved_s = 0.0
        self._completed_at_save = 0
        self._since_flush = 0
        """Segments sent since the last flush whose acks are waited for."""
        self._waiting_for_room = 0
        """Partitions of this round that wait for a reservation."""
        self.paused = False
        """Nothing new is read; what is pending is still replayed."""
        self.partitions: dict[int, Partition] = {}
        self.exhausted: dict[int, int] = {}
        """Partitions that were wholly complete already when this peer took them over, with their
        positions."""
        self.completed = 0
        """Trees completed here."""
        self.retried, self._retried_before, self._taken_over = 0, 0, 0
        """Segments sent again here, and those that were when somebody asked last."""
        self.holds = InFlightRoots()
        """Trees that somebody works on."""

    @property
    def woken(self) -> bool:
        """Whether the task is woken for all that may be read next: nothing waits for the clock, or
        for a reservation."""
        waits = self._limit.holds or self.rested_s < math.inf or self._waiting_for_room > 0
        return self.plugin.wakes and not waits and not self._entry.batch_timeout

    @property
    def in_flight(self) -> int:
        """Segments that were sent and whose trees are not complete."""
        return sum(each.pending.in_flight for each in self.partitions.values())

    @property
    def resting(self) -> int:
        """Segments that wait for a retry, about."""
        return sum(each.pending.resting for each in tuple(self.partitions.values()))

    @property
    def obstacle(self) -> str:
        """Why a source gives nothing new, where its reader knows; from any thread."""
        readers = [plugin_reader(each.reader) for each in tuple(self.partitions.values())]
        return next(filter(None, (each.obstacle() for each in readers)), "")

    @property
    def pending_timeout_ms(self) -> int:
        """After which what nobody works on is read again."""
        return self._entry.pending_timeout

    def overdue(self, now_s: float) -> int:
        """Segments that were sent longer ago and are not complete, about; from any thread."""
        return sum(each.pending.overdue(now_s) for each in tuple(self.partitions.values()))

    def oldest_s(self, now_s: float) -> float | None:
        """Seconds since the oldest segment in flight was sent; None if there is none."""
        ages = (each.pending.oldest_s(now_s) for each in tuple(self.partitions.values()))
        return max((age for age in ages if age is not None), default=None)

    def oldest_open_s(self, now_s: float) -> float | None:
        """Since when the oldest segment in flight was read first; None if there is none. From any
        thread."""
        ages = (each.oldest_open_s(now_s) for each in tuple(self.partitions.values()))
        return max((age for age in ages if age is not None), default=None)

    @property
    def has_end(self) -> bool:
        """Whether it ends some day, as its plugin and options say; of a stage nobody knows."""
        plugin = self._entry.plugin
        return plugin is not None and not may_be_endless(plugin, self._entry.options)

    @property
    def done(self) -> int:
        """Positions of all partitions before which everything is processed; from any thread."""
        here = sum(each.position for each in tuple(self.partitions.values()))
        return here + sum(tuple(self.exhausted.values()))

    @property
    def behind(self) -> Callable[[Mapping[str, Cursor]], Mapping[str, Behind]] | None:
        """Asks the plugin how far it is behind; None: it does not say."""
        return self.plugin.behind if isinstance(self.plugin, MeasuredInput) else None

    def opened(self) -> list[OpenPartition]:
        """The partitions that have not ended; from any thread."""
        return [
            OpenPartition(
                each.name,
                each.position,
                each.store.cursor,
                each.pending.in_flight,
                # Readers of users' own are asked by one thread.
                self.has_end and each.ended,
                each.newest_ms,
            )
            for each in tuple(self.partitions.values())
            if not each.store.exhausted
        ]

    def open(self, number: int, name: str, store: FrontierStore, at: Frontier) -> None:
        """Take over a partition at its frontier."""
        if at.exhausted:
            self.exhausted[number] = at.position
            return
        partition = self.partitions[number] = self._opener.open(number, name, store, at)
        partition.newest_ms = at.newest_ms
        if self._times is not None and self._times.follows_clock and at.come_to_ms is not None:
            partition.come_to_ms = at.come_to_ms
            self._times.had_come_to(number, at.come_to_ms)

    def change(self, entry: CatalogEntry) -> None:
        """Follow other values of the entry. A stage reads columns, whatever it has."""
        entry = replace(entry, batch_format=self._entry.batch_format)
        self._entry, self._opener = entry, replace(self._opener, entry=entry)
        for partition in self.partitions.values():
            partition.change(entry)

    def limit(self, per_second: float | None) -> None:
        """Read so many segments a second that are new, at most; None: as many as there are."""
        if per_second is None and not self._limit.holds:
            return
        self._limit.change(per_second)
        most = self._limit.reserve_max(len(self.partitions))
        for partition in self.partitions.values():
            partition.reserve_max = most

    def give_away(self, numbers: Collection[int]) -> bool:
        """Leave partitions to others, who find in the store exactly how far they were read; True
        when that is done."""
        mine = [self.partitions[number] for number in numbers if number in self.partitions]
        stored = [each.store.save(each.frontier(reserve=0)) for each in mine]
        if not all(stored):
            return False
        for number in numbers:
            if number in self.partitions:
                self.partitions.pop(number).reader.close()
            self.exhausted.pop(number, None)
        if self._times is not None:
            self._times.forget(numbers)
        return True

    def drain(self) -> None:
        """Read nothing new from now on; what is pending is still replayed until it is complete."""
        for partition in self.partitions.values():
            partition.drain()

    @property
    def known(self) -> list[int]:
        """Numbers of the partitions that this peer has taken over, in order."""
        return sorted({*self.exhausted, *self.partitions})

    def close(self) -> None:
        """Close readers and plugin; frontiers are not saved."""
        for partition in self.partitions.values():
            partition.reader.close()
        self.partitions.clear()
        self.plugin.close()

    def complete(self, roots: Numbers, metrics: TaskMetrics = NULL_TASK) -> None:
        """Mark trees as complete; completions of older attempts are ignored."""
        now_s = self._clock.monotonic_s()
        for number, mine in self._by_partition(roots):
            partition = self.partitions[number]
            for seconds, segments, first in partition.latencies(mine, now_s):
                metrics.completed(seconds, segments, (partition.name, first))
            self.completed += partition.completed(mine)

    def returned(self, trees: Trees) -> None:
        """Functions give something back for trees that are about to be complete."""
        for root, parts in trees.items():
            for number, mine in self._by_partition(np.array([root], dtype=np.uint64)):
                self.partitions[number].returned(mine, parts)

    def incomplete(self, roots: Numbers) -> U64:
        """The roots whose trees are not complete yet, each once."""
        found = [
            self.partitions[number].pending.incomplete(mine)
            for number, mine in self._by_partition(roots)
        ]
        return array_of(joined(found))

    def take_retried(self) -> int:
        """Segments sent again since the last time this was asked."""
        before, self._retried_before = self._retried_before, self.retried
        return self.retried - before

    def take_taken_over(self) -> int:
        """Segments sent that an owner before this one may have sent, since the last time this was
        asked."""
        taken_over, self._taken_over = self._taken_over, 0
        return taken_over

    def take_given_up(self) -> int:
        """Segments that have failed or were lost and are not read again, since the last time."""
        if not self._gives_up:
            return 0
        return sum(each.take_given_up() for each in self.partitions.values())

    def force_retry(self, roots: Numbers, retries_max: int) -> None:
        """Read these again after a rest (functions and flow conditions ask for it), each at most so
        many times; or what the retry mode of the input says instead."""
        now_s = self._clock.monotonic_s()
        for number, mine in self._by_partition(roots):
            pending = self.partitions[number].pending
            pending.retry_roots(mine, retries_max, now_s)
            self.rested_s = min(self.rested_s, pending.rested_s)

    def replay_pending(self) -> None:
        """After a re-allocation: whatever was in flight is lost, read it again at once."""
        for partition in self.partitions.values():
            partition.replay_pending()
        if self._times is not None:
            self._times.ask_anew()

    def read(self) -> list[Batch]:
        """The next batch to send, retries first, as one of each form that its segments have;
        nothing when there is nothing or no room now."""
        self._check_timeouts(self._clock.monotonic_s())
        self._waiting_for_room = 0
        held_ms: int | None = None
        waiting = list(self.partitions.values())
        in_flight = sum([each.pending.in_flight for each in waiting])
        for step in range(len(waiting)):
            partition = waiting[(self._turn + step) % len(waiting)]
            # Also beyond `pending_max`: what is read again is in flight already.
            if partition.to_retry:
                batches = partition.retry(self.plugin, self._clock)
                for batch in batches:
                    batch.bad = self._bad_again(partition, batch)
                self.retried += sum(map(len, batches))
            elif (ahead_ms := self._ahead_ms(partition)) is not None:
                held_ms, batches = ahead_ms if held_ms is None else min(held_ms, ahead_ms), []
            else:
                batches = self._read_new(partition, in_flight)
            if batches:
                self._turn += step + 1
                self._since_flush += sum(len(each) for each in batches if each.roots is not None)
                self.held_ms = None
                return batches
        self.held_ms = held_ms
        return []

    def _ahead_ms(self, partition: Partition) -> int | None:
        """The event time of a partition that waits for others; None if it may be read. One that is
        to stop is read up to there: somebody waits for that."""
        if self.most_ms is None or self._times is None or partition.stop is not None:
            return None
        time_ms = None if partition.ended else self._times.reached(partition.number)
        if time_ms is None or time_ms <= self.most_ms:
            return None
        self._times.ask_anew(partition.number)
        return time_ms

    def wants_flush(self) -> bool:
        """Whether outputs should make durable what they hold: half of what may be pending was sent
        since the last time, all is read, the job is paused, or somebody waits for it."""
        awaited = [each.awaited() for each in self.partitions.values()]
        much = self._since_flush * 2 >= self._sizing.pending_max
        due = self._since_flush and (much or self.paused or self.finished_reading())
        if not (due or any(awaited)):
            return False
        self._since_flush = 0
        return True

    def mark(self) -> Mark:
        """How far event time has come by what was read. While there is something to replay, what is
        to come may be older than what had been read before."""
        if self._times is None:
            return IDLE
        if any(each.replays for each in self.partitions.values()):
            return SILENT
        return self._times.mark([n for n, each in self.partitions.items() if not each.ended])

    def frontiers(self) -> dict[int, int]:
        """For each partition the lowest position that may be sent again, by this peer or by whoever
        takes over from what is stored."""
        found = {number: each.store.position for number, each in self.partitions.items()}
        return found | dict.fromkeys(self.exhausted, POSITIONS_MAX - 1)

    def finished_reading(self) -> bool:
        """Whether nothing is left to read, neither new nor again."""
        return all(each.finished_reading() for each in self.partitions.values())

    def all_complete(self) -> bool:
        """Whether everything is read, and every tree complete."""
        return all(each.complete() for each in self.partitions.values())

    def save_frontiers(self) -> bool:
        """Begin to save what has changed; True when all of it is stored."""
        stored = [each.save() for each in self.partitions.values()]  # begin all of them
        return all(stored)

    def checkpoint(self, interval_s: float) -> bool:
        """Save frontiers if that is due, so many seconds after the last time, or as soon as enough
        segments are complete (`checkpointSegments`, or many); True when it was by time."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_checkpoint_s:
            self._save_by_count(now_s)
            return False
        self._next_checkpoint_s, self._saved_s = now_s + interval_s, now_s
        self._completed_at_save = self.completed
        for partition in self.partitions.values():
            partition.checkpoint()
        return True

    def _save_by_count(self, now_s: float) -> None:
        enough, after_s = self._entry.checkpoint_segments, 0.0
        if enough is None:  # as often as it costs nothing
            enough, after_s = SAVED_EVERY_SEGMENTS, SAVED_AFTER_S
        if self.completed - self._completed_at_save >= enough and now_s >= self._saved_s + after_s:
            self._completed_at_save, self._saved_s = self.completed, now_s
            self.save_frontiers()

    def _read_new(self, partition: Partition, in_flight: int) -> list[Batch]:
        wanted = partition.wanted(in_flight)
        stops = partition.next_position == partition.stop
        if wanted <= 0 or stops or partition.finished_reading():
            return []
        again = partition.again
        wanted = self._limit.allowed(min(wanted, self._may_send(partition)), again)
        if wanted <= 0:
            return []
        first, read = partition.next_position, partition.reader.read(wanted)
        self._limit.spend(len(read), again)
        self._taken_over += min(len(read), again)
        bad = self._bad.among_new(
            partition.number,
            read,
            lambda index: self.plugin.describe(partition.name, first + index),
        )
        if self._times is not None:
            partition.has_read(self._times.newest_ms(partition.number))
        if self._times is not None and self._times.follows_clock:
            partition.has_come_to(self._times.come_to(partition.number), by_clock=not len(read))
        now_s = self._clock.monotonic_s()
        if not len(read):
            partition.give_up_if_idle(now_s)
            return []
        batches = partition.emit(read, now_s)
        for batch, its in zip(batches, bad, strict=True):
            batch.bad = its
        return batches

    def _bad_again(self, partition: Partition, batch: Batch) -> list[SegmentFailure]:
        assert batch.roots is not None, "what is not accounted for is not retried"
        positions = positions_of(array_of(batch.roots))
        describe = self.plugin.describe
        return self._bad.among_old(
            batch.segments, lambda index: describe(partition.name, int(positions[index]))
        )

    def _may_send(self, partition: Partition) -> int:
        """Positions that may be sent now: each is reserved in the store before it ever is."""
        store, at = partition.store, partition.next_position
        room, wanted = store.reserved - at, partition.reserve()
        # Ahead of need, so that reading does not wait for the store; few at once, because a task
        # with thousands of new partitions would write as many documents before it reads one.
        if room <= wanted // 2 and self._waiting_for_room < RESERVING_MAX:
            self._waiting_for_room += room <= 0
            store.save(partition.frontier(wanted))
            room = store.reserved - at
        return room if partition.stop is None else min(room, partition.stop - at)

    def _check_timeouts(self, now_s: float) -> None:
        if now_s >= self.rested_s:
            self._take_rested(now_s)
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + self._entry.input_retry_timeout / 1000
        for roots in self.holds.take():
            for number, mine in self._by_partition(roots):
                self.partitions[number].pending.held(mine, now_s)
        for partition in self.partitions.values():
            lost = partition.pending.expired(now_s)
            partition.read_again(lost)
            if lost:
                self._log_lost(sum(end - first for first, end in lost), now_s)

    def _log_lost(self, count: int, now_s: float) -> None:
        if now_s >= self._next_lost_log_s:
            self._next_lost_log_s = now_s + LOST_LOGGED_EVERY_S
            logger.warning(
                "input %s reads about %d segments again: they are not processed, and no worker has "
                "said for pendingTimeout (%d ms) that it works on them",
                self._entry.name,
                count,
                self._entry.pending_timeout,
            )

    def _take_rested(self, now_s: float) -> None:
        for partition in self.partitions.values():
            partition.read_again(partition.pending.rested(now_s))
        rested_s = (each.pending.rested_s for each in self.partitions.values())
        self.rested_s = min(rested_s, default=math.inf)

    def _by_partition(self, roots: Numbers) -> list[tuple[int, Numbers]]:
        """Increasing roots of the partitions that are here."""
        return [
            (number, roots[part])
            for number, part in cut(roots, PARTITION_SHIFT)
            if number in self.partitions
        ]


# --- how fast it may be read --------------------------------------------------------------------


class ReadLimit:
    """The limit of one peer of an input; without one, everything may be read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bucket: TokenBucket | None = None

    @property
    def holds(self) -> bool:
        """Whether there is a limit."""
        return self._bucket is not None

    def change(self, per_second: float | None) -> None:
        """Follow another limit, or another part of it; None for no limit."""
        now_s = self._clock.monotonic_s()
        if per_second is None:
            self._bucket = None
        elif self._bucket is None:
            self._bucket = TokenBucket(per_second, now_s)
        elif per_second != self._bucket.per_second:
            self._bucket.change(per_second, now_s)

    def allowed(self, wanted: int, again: int) -> int:
        """How many of the next `wanted` positions may be read now, if the first `again` of them may
        have been sent before."""
        if self._bucket is None or wanted <= again:
            return wanted
        tokens = self._bucket.available(self._clock.monotonic_s())
        if tokens < min(wanted - again, self._bucket.per_second * GRAIN_S):
            return again
        return min(wanted, again + tokens)

    def spend(self, count: int, again: int) -> None:
        """Count segments that were read."""
        if self._bucket is not None:
            self._bucket.spend(max(0, count - again))

    def reserve_max(self, partitions: int) -> int | None:
        """Most positions to reserve ahead in each of so many partitions; None for no limit."""
        if self._bucket is None:
            return None
        return max(1, math.ceil(self._bucket.per_second * RESERVED_S / max(1, partitions)))


def part_of(limit: int, own: Collection[int], all_of_task: range, ended: Container[int]) -> float:
    """The part of a task's limit that a peer has.

    Args:
        own: numbers of the partitions that it owns.
        all_of_task: numbers of all partitions of the task.
        ended: numbers of those that are exhausted.
    """
    everybodys = sum(number not in ended for number in all_of_task)
    mine = sum(number not in ended for number in own)
    return limit * mine / everybodys if everybodys else float(limit)


# --- how far it is ------------------------------------------------------------------------------


def report_progress(source: Source, metrics: TaskMetrics) -> None:
    """Report what is in flight and what is processed, of all partitions together."""
    metrics.set(SOURCE_PENDING, source.in_flight)
    metrics.set(SOURCE_OFFSET, source.done)


# --- hooks for each segment ---------------------------------------------------------------------


def complete_trees(source: Source, program: Program, roots: Numbers) -> None:
    """Mark trees as processed and call after_ack_segment for each that was not before."""
    if not program.lifecycles.has("after_ack_segment"):
        source.complete(roots, program.metrics)
        return
    fresh = source.incomplete(roots)
    source.complete(roots, program.metrics)
    _call(source, program, "after_ack_segment", fresh)


def tell_retried(source: Source, program: Program, batch: Batch) -> None:
    """Call after_retry_segment for each segment of a batch that is sent again."""
    if batch.roots is not None and program.lifecycles.has("after_retry_segment"):
        _call(source, program, "after_retry_segment", batch.roots)


def _call(source: Source, program: Program, hook: str, roots: Numbers) -> None:
    array = array_of(roots)
    numbers, positions = partitions_of(array).tolist(), positions_of(array).tolist()
    try:
        for number, position in zip(numbers, positions, strict=True):
            message = (source.partitions[number].name, position)
            program.lifecycles.each_segment(hook, program.event, message)
    except BaseException as error:
        raise Failure(hook.replace("_", "-"), contained(error)) from error
