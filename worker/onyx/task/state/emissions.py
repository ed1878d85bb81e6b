"""What the operator of one peer has emitted, until every tree of it is complete.

An emission is a tree of its own: its position counts the emissions of its shard, its source is the
state log. It is sent only when the log has it, and sent again by whoever recovers the shard, until
its tree is complete; so nobody can see an emission that a crash would take back.

Without trees (at-most-once) an emission is sent once and forgotten.

Thousands of groups fire together, so what is kept of an emission must not be an object of its own:
a run is a list of dicts or some columns of one shard, at consecutive positions, and a position in
it is an index. Runs that wait for their trees to be complete are found by position (`SentRuns`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import field

from onyx.base.runs import Numbers
from onyx.base.runs import joined as one_column
from onyx.base.seams import Clock
from onyx.codec.segments import size_bytes
from onyx.flow.batch import (
    U64,
    Batch,
    EncodedRun,
    Segment,
    Segments,
    format_of,
    joined,
    part_of,
    take,
)
from onyx.flow.columns.record_batch import Columns
from onyx.ledger.lineage import (
    PARTITION_SHIFT,
    cut,
    ids_of,
    positions_of,
    source_number,
)
from onyx.ledger.pending import InFlightRoots, PendingPositions
from onyx.ledger.retry_delay import DEFAULT, RetryDelay

IN_FLIGHT_A_SHARD_MAX = 8_192
"""Emissions of a shard between the first one that is not complete and the newest one sent."""

UNSETTLED_MAX = 100_000
"""With more emissions that are not complete, a peer of the task reads nothing, and carries out no
further page of what fires."""

HELD_BYTES_MAX = 67_108_864
"""The limit for their size, encoded."""

READ_BYTES_MAX = 2_097_152
"""The size of what is sent at once, encoded; about."""

CHECK_INTERVAL_S = 1.0


# --- runs ---------------------------------------------------------------------------------------


class EmissionRun(NamedTuple):
    """Segments on their way out, in one format."""

    segments: Segments
    child: str | None = None
    """The only child task that they are for (late segments); None: wherever flow conditions send
    them."""
    size_bytes: int = 0
    """Their size, if that counts."""
    encoded: EncodedRun | None = None
    """Their bytes for the log (`EmittedRun`), until it has them."""
    parents: U64 | None = None
    """The root of the tree that each of them was made of, where that is known and wanted."""

    def part(self, first: int, last: int) -> EmissionRun:
        """The part from `first` to before `last`. The sizes of parts add up to that of the run."""
        count = len(self.segments)
        if first == 0 and last >= count:
            return self
        before, through = (self.size_bytes * each // count for each in (first, min(last, count)))
        parents = None if self.parents is None else self.parents[first:last]
        return EmissionRun(
            part_of(self.segments, first, last), self.child, through - before, parents=parents
        )


Placed = tuple[int, EmissionRun]
"""A run with the position of its first emission."""


def run_of(segments: Segments, child: str | None, encoded: EncodedRun | None = None) -> EmissionRun:
    """Segments for this child, or for all, with their size.

    Args:
        encoded: their bytes, if somebody has them.

    Raises:
        SegmentError: a value cannot be encoded.
    """
    if encoded is not None:
        return EmissionRun(segments, child, len(encoded[0]), encoded)
    count_bytes = format_of(segments).choose(_bytes_of_dicts, _bytes_of_columns)
    return EmissionRun(segments, child, count_bytes(segments))


def gathered(runs: Iterable[EmissionRun]) -> Iterator[EmissionRun]:
    """Runs in order, those joined that follow each other and have child and format in common, and
    no bytes."""
    for (child, _, encoded, known), alike in groupby(runs, _alike):
        each = list(alike)
        if len(each) == 1 or encoded:
            yield from each
        else:
            segments = joined([run.segments for run in each])
            size_bytes = sum(run.size_bytes for run in each)
            found = [run.parents for run in each if run.parents is not None]
            yield EmissionRun(
                segments, child, size_bytes, None, np.concatenate(found) if known else None
            )


def _alike(run: EmissionRun) -> tuple[str | None, object, bool, bool]:
    types = format_of(run.segments).types(run.segments)
    return run.child, types, run.encoded is not None, run.parents is not None


def _bytes_of_dicts(segments: list[Segment]) -> int:
    return size_bytes(segments)


def _bytes_of_columns(columns: Columns) -> int:
    return columns.size_bytes


class SentRuns:
    """What was sent, from the first emission that is not complete on."""

    def __init__(self) -> None:
        self._runs: deque[Placed] = deque()

    def add(self, first: int, run: EmissionRun) -> None:
        """A run was sent, behind all that is here."""
        self._runs.append((first, run))

    def forget(self, frontier: int) -> int:
        """Nothing before this position is needed any more; gives the bytes that went."""
        freed = 0
        while self._runs:
            first, run = self._runs[0]
            past = frontier - first
            if past < len(run.segments):
                if past > 0:
                    self._runs[0] = frontier, run.part(past, len(run.segments))
                    freed += run.part(0, past).size_bytes
                break
            freed += run.size_bytes
            self._runs.popleft()
        return freed

    def between(self, first: int, end: int) -> Iterator[Placed]:
        """What there is of positions from `first` to before `end`."""
        for start, run in self._runs:
            if start >= end:
                break
            begin = max(first, start)
            if begin < start + len(run.segments):
                yield begin, run.part(begin - start, end - start)

    def __iter__(self) -> Iterator[Placed]:
        return iter(self._runs)


# --- emissions ----------------------------------------------------------------------------------

PlacedRuns = dict[int, list[Placed]]
"""Runs with their positions, by shard."""


class Span(NamedTuple):
    """Emissions of one shard that follow each other."""

    shard: int
    first: int
    end: int


class _ChunkOutput(msgspec.Struct):
    """The emissions that came into the log in one chunk, or were taken over."""

    emissions: int = 0
    """How many there are of all shards."""
    unsent: int = 0
    """How many of them have never been sent."""


class _ShardEmissions(msgspec.Struct):
    pending: PendingPositions | None
    """None without trees."""
    next_position: int
    source: int
    """`source_number` of the partition that its emissions are."""
    unsent: deque[EmissionRun] = field(default_factory=deque)
    """In the log and not sent yet, in order."""
    waiting: int = 0
    """How many emissions `unsent` has."""
    outputs: deque[tuple[_ChunkOutput, int]] = field(default_factory=deque)
    """How many of these came with which chunk, in order."""
    kept: SentRuns = field(default_factory=SentRuns)
    """Sent, from the first that is not complete on."""
    again: list[tuple[int, int]] = field(default_factory=list)
    """Positions to be sent again: from each first one to before the second."""


class Emissions:
    """The emissions of one task with state on one peer, in one allocation version. Not
    thread-safe."""

    def __init__(
        self,
        task: str,
        first_partition: int | None,
        clock: Clock,
        timeout_s: float,
        retry_delay: RetryDelay = DEFAULT,
    ) -> None:
        """
        Args:
            task: its name, part of the ids of what it emits.
            first_partition: number of the partition of shard 0; None without trees.
            clock: for time-outs.
            timeout_s: a tree that is not complete after this is sent again.
            retry_delay: before a retry that a flow condition asks for.
        """
        self._task = task
        self.first_partition = first_partition
        self._clock = clock
        self._timeout_s = timeout_s
        self._retry_delay = retry_delay
        self._shards: dict[int, _ShardEmissions] = {}
        self._fresh: dict[int, list[EmissionRun]] = {}
        self._next_check_s = 0.0
        self.holds = InFlightRoots()
        """Trees that somebody works on."""
        self._settled: dict[int, int] = {}
        self.unsettled = 0
        """Emissions that are not complete, sent or not."""
        self.held_bytes = 0
        """Size of all that is kept: not complete, or behind what is not."""
        self.added = 0
        """How many there have been, those taken over included."""
        self.sent = 0
        """How many of them have been sent, each counted once."""
        self.sent_through = 0
        """So many of the first ones have all been sent, which watermarks and flushes wait for. Not
        `sent`: shards are not sent in the order in which they emitted, and one may have no
        room."""
        self._outputs: deque[_ChunkOutput] = deque()
        """Chunks of which something is unsent, and what lies between them; the oldest first."""
        self._flushed = 0
        self._flushed_bytes = 0
        self._sent_bytes = 0

    def restore(self, shard: int, settled: int, runs: Iterable[EmissionRun]) -> None:
        """Take over a shard: everything from position `settled` on is sent again."""
        there = self._shard(shard, settled)
        if not self._outputs:
            self._outputs.append(_ChunkOutput())
        # Which were sent is not known, so all of them are sent: under the same ids, of which tasks
        # downstream know what they have applied.
        for run in runs:
            self._to_send(there, run)
            self.held_bytes += run.size_bytes
        there.next_position = settled + there.waiting
        self.unsettled += there.waiting
        self.added += there.waiting
        self._check_counts()

    def add(self, shard: int, run: EmissionRun) -> None:
        """New ones; nothing is sent before `release`."""
        if count := len(run.segments):
            self._fresh.setdefault(shard, []).append(run)
            self.unsettled += count
            self.added += count
            self.held_bytes += run.size_bytes

    def take_fresh(self) -> PlacedRuns:
        """The new ones with their positions, for the log; to be released when it has them."""
        taken: PlacedRuns = {}
        for shard, runs in self._fresh.items():
            there, taken[shard] = self._shard(shard, 0), []
            for run in gathered(runs):
                taken[shard].append((there.next_position, run))
                there.next_position += len(run.segments)
        self._fresh = {}
        return taken

    def release(self, taken: PlacedRuns) -> None:
        """The log has them."""
        if not taken:
            return
        self._outputs.append(_ChunkOutput())
        for shard, runs in taken.items():
            for _, run in runs:
                self._to_send(self._shards[shard], run._replace(encoded=None))

    @property
    def waiting(self) -> bool:
        """Whether something can be sent now."""
        if not self.unsettled:
            return False
        self._check_timeouts()
        return any(each.again or (each.unsent and _room(each)) for each in self._shards.values())

    def read(self, segments_max: int) -> list[tuple[str | None, Batch]]:
        """What is to be sent now, by the only child that it is for: so many segments, or as many as
        have `READ_BYTES_MAX`."""
        parts: dict[tuple[str | None, object], list[tuple[Segments, Numbers | None]]] = {}
        bytes_max = READ_BYTES_MAX
        for there in self._shards.values():
            for run, roots in self._sendable(there, segments_max, bytes_max):
                alike = run.child, format_of(run.segments).types(run.segments)
                parts.setdefault(alike, []).append((run.segments, roots))
                segments_max -= len(run.segments)
                bytes_max -= run.size_bytes
            if segments_max <= 0 or bytes_max <= 0:
                break
        self._check_counts()
        return [(child, self._batch(found)) for (child, _), found in parts.items()]

    def complete(self, roots: Numbers) -> bool:
        """Trees that are complete; True when the log does not know of some that are settled."""
        for number, part in cut(roots, PARTITION_SHIFT):
            shard, there = self._of_partition(number)
            if there is None or there.pending is None:
                continue
            before = there.pending.frontier
            self.unsettled -= there.pending.complete(roots[part])
            if there.pending.frontier > before:
                self._settled[shard] = there.pending.frontier
                self.held_bytes -= there.kept.forget(there.pending.frontier)
        self._check_counts()
        return bool(self._settled)

    def is_complete(self, span: Span) -> bool:
        """Whether all of these are complete."""
        there = self._shards[span.shard]
        return there.pending is None or there.pending.all_complete(span.first, span.end)

    def incomplete(self) -> list[Span]:
        """Everything that the log has and that may not be complete."""
        spans = [
            Span(shard, there.pending.frontier, there.pending.next_position + there.waiting)
            for shard, there in self._shards.items()
            if there.pending is not None
        ]
        return [each for each in spans if each.first < each.end]

    def shard_of(self, partition: int) -> int:
        """The shard whose emissions are this partition."""
        return self._of_partition(partition)[0]

    def wants_flush(self, ends: bool) -> bool:
        """Whether outputs should make durable what they hold: half of what may be held has been
        sent since the last time, or nothing can be sent or fired before some of it is complete, or
        `ends`: nothing more is to come. Asked again it is not."""
        since, since_bytes = self.sent - self._flushed, self._sent_bytes - self._flushed_bytes
        due = since * 2 >= UNSETTLED_MAX or since_bytes * 2 >= HELD_BYTES_MAX
        due |= ends and since > 0 and self.sent == self.added
        due = due or (since > 0 and self._stuck())
        if due:
            self._flushed, self._flushed_bytes = self.sent, self._sent_bytes
        return due

    @property
    def full(self) -> bool:
        """Whether so much has been emitted and is not complete that it is to be waited for."""
        return self.unsettled > UNSETTLED_MAX or self.held_bytes > HELD_BYTES_MAX

    def _stuck(self) -> bool:
        """Whether everything waits for what was sent."""
        shards = self._shards.values()
        if self._fresh or any(each.unsent and _room(each) for each in shards):
            return False
        return self.full or any(each.unsent for each in shards)

    def force_retry(self, roots: Numbers, retries_max: int) -> None:
        """Send these again after a rest (flow conditions with `action: retry`), each at most so
        many times."""
        now_s = self._clock.monotonic_s()
        for number, part in cut(roots, PARTITION_SHIFT):
            _, there = self._of_partition(number)
            if there is not None and there.pending is not None:
                there.pending.retry_roots(roots[part], retries_max, now_s)
                self._next_check_s = min(self._next_check_s, there.pending.rested_s)

    def take_settled(self) -> dict[int, int]:
        """For each shard where that has changed, the first position that is not complete."""
        settled, self._settled = self._settled, {}
        return settled

    def pending(self, shard: int) -> tuple[int, list[Placed]]:
        """For a snapshot: the first position that is not complete and, without a gap, everything
        from there on that the log has."""
        there = self._shards.get(shard)
        if there is None:
            return 0, []
        if there.pending is None:
            return there.next_position, []
        runs, position = list(there.kept), there.pending.next_position
        for run in there.unsent:
            runs.append((position, run))
            position += len(run.segments)
        return there.pending.frontier, runs

    def _to_send(self, there: _ShardEmissions, run: EmissionRun) -> None:
        """A run waits, with those of the newest chunk."""
        output, count = self._outputs[-1], len(run.segments)
        there.unsent.append(run)
        there.waiting += count
        there.outputs.append((output, count))
        output.emissions += count
        output.unsent += count

    def _has_sent(self, there: _ShardEmissions, count: int) -> None:
        """Count emissions of a shard that have been sent for the first time, in order."""
        self.sent += count
        while count:
            output, left = there.outputs.popleft()
            part = min(count, left)
            output.unsent -= part
            assert output.unsent >= 0, "nothing is sent for the first time twice"
            count -= part
            if left > part:
                there.outputs.appendleft((output, left - part))
        assert bool(there.outputs) == bool(there.waiting) == bool(there.unsent), "one queue"
        while self._outputs and not self._outputs[0].unsent:
            self.sent_through += self._outputs.popleft().emissions
        assert self._outputs or self.sent_through == self.sent, "nothing in the log is unsent"

    def _check_counts(self) -> None:
        """What holds between the counters after each call."""
        assert 0 <= self.sent_through <= self.sent <= self.added, "they are sent in this order"
        assert self.added - self.sent <= self.unsettled <= self.added, "what is unsent is open"
        assert self.held_bytes >= 0, "no bytes are let go twice"

    def _shard(self, shard: int, settled: int) -> _ShardEmissions:
        if shard not in self._shards:
            source = source_number(self._task, str(shard))
            self._shards[shard] = _ShardEmissions(self._pending(shard, settled), settled, source)
        return self._shards[shard]

    def _pending(self, shard: int, settled: int) -> PendingPositions | None:
        if self.first_partition is None:
            return None
        return PendingPositions(
            partition=self.first_partition + shard,
            frontier=settled,
            capacity=IN_FLIGHT_A_SHARD_MAX,
            pending_timeout_s=self._timeout_s,
            retry_interval_s=CHECK_INTERVAL_S,
            started_s=self._clock.monotonic_s(),
            retry_delay=self._retry_delay,
        )

    def _of_partition(self, number: int) -> tuple[int, _ShardEmissions | None]:
        shard = number - (self.first_partition or 0)
        return shard, self._shards.get(shard)

    def _sendable(
        self, there: _ShardEmissions, segments_max: int, bytes_max: int
    ) -> Iterator[tuple[EmissionRun, Numbers | None]]:
        """Runs with their roots, those to be sent again first."""
        now_s, pending = self._clock.monotonic_s(), there.pending
        # Also without room: what is sent again has its place in flight already.
        again, there.again = there.again, []
        for first, end in again:
            assert pending is not None, "without trees nothing is sent again"
            for position, run in there.kept.between(first, end):
                roots = pending.retry(position, position + len(run.segments), now_s)
                chosen = (positions_of(roots) - np.uint64(position)).view(np.int64)
                if len(chosen):
                    yield EmissionRun(take(run.segments, chosen), run.child), roots
        while there.unsent and min(segments_max, bytes_max) > 0 and (room := _room(there)):
            run = _next_of(there, min(segments_max, room), bytes_max)
            count = len(run.segments)
            segments_max -= count
            bytes_max -= run.size_bytes
            self._has_sent(there, count)
            self._sent_bytes += run.size_bytes
            if pending is None:
                self.unsettled -= count
                self.held_bytes -= run.size_bytes
                yield run, None
            else:
                there.kept.add(pending.next_position, run)
                yield run, pending.emit(count, now_s)

    def _batch(self, parts: list[tuple[Segments, Numbers | None]]) -> Batch:
        segments = joined([part for part, _ in parts])
        columns = [roots for _, roots in parts if roots is not None]
        if not columns:
            return Batch(segments)
        ids = [ids_of(self._source(roots), roots) for roots in columns]
        return Batch(segments, one_column(columns), one_column(ids))

    def _source(self, roots: Numbers) -> int:
        _, there = self._of_partition(int(roots[0]) >> PARTITION_SHIFT)
        assert there is not None, "its emissions are sent here"
        return there.source

    def _check_timeouts(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + CHECK_INTERVAL_S
        for roots in self.holds.take():
            for number, part in cut(roots, PARTITION_SHIFT):
                _, shard = self._of_partition(number)
                if shard is not None and shard.pending is not None:
                    shard.pending.held(roots[part], now_s)
        for there in self._shards.values():
            if there.pending is not None:
                there.again += there.pending.expired(now_s)
                there.again += there.pending.rested(now_s)
                self._next_check_s = min(self._next_check_s, there.pending.rested_s)


def _room(there: _ShardEmissions) -> int:
    return there.pending.room if there.pending is not None else there.waiting


def _next_of(there: _ShardEmissions, most: int, bytes_max: int) -> EmissionRun:
    """Take the next run that is to be sent, or so many of it; one at least."""
    run = there.unsent.popleft()
    if run.size_bytes > bytes_max:
        most = min(most, max(1, len(run.segments) * bytes_max // run.size_bytes))
    while (count := len(run.segments)) > most:
        half = max(most, count // 2)  # what is left is copied a few times, and not for each part
        there.unsent.appendleft(run.part(half, count))
        run = run.part(0, half)
    there.waiting -= len(run.segments)
    return run
