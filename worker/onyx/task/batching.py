"""Batches of a task: how many segments one may have, how long it waits to be filled, and what it
takes.

**Sizes** (`BatchSizing`, for a task whose `batchSize` is left out).

A batch costs its tasks something whatever is in it: locks, bookkeeping, frames, or the round trip
of a plugin. A large batch spreads that cost over more segments, and each of its segments waits
longer. So the size grows only while batches are full, which is while more waits than is taken, and
only until that cost is small:

* A batch of less than `CPU_ENOUGH_S` of work is too small, because what Onyx itself does for a
  batch, partly on threads that the task does not see, takes some tenths of a millisecond. That is
  CPU time: in a process that gets a part of a processor both take longer, and their ratio stays.
  For columns this limit is `COLUMNS_CPU_ENOUGH_S`: their work is so fast that what a batch costs,
  some milliseconds over all, is a tenth of it only then.
* Sizes are powers of two, and the time that each takes is remembered. If twice the size takes less
  than twice as long, the difference is what a batch costs the function or plugin; as long as that
  is more than `COST_SHARE_MAX` of its time, the size grows on. A batch counts as of the power that
  it nearly has: bad records, which are of another form, are taken out of a batch that was full.

It shrinks when a batch takes longer than `TIME_MAX_S` for its work rather than its cost, and when
its segments are so large that it exceeds `BATCH_BYTES_MAX`. It is halved while the container of the
worker has little memory left (`peer.watch.memory_watch`), and grows no further then. With few
segments nothing changes, because a task takes what is there and waits for no more: the size is the
most that it takes.

What a task makes of a batch counts as much, because it is a batch of the next task. Dicts are gone
through several times between two functions, and a third less time was measured as long as all of a
batch are in the processor's cache. So more than `SEGMENTS_MAX` are worth it only for a function or
plugin to which a batch costs much.

Times are noisy, mostly upwards: a process that is interrupted seems slow. So the time of a size
falls at once and rises slowly. Everything follows from what is observed: equal times give equal
sizes.

Rejected: a fixed large size (a slow function would hold each segment up for a whole batch), and a
target for the time alone (a plugin with a round trip of 50 ms would get ever smaller batches).

**Filling** (`batchTimeout`). A task goes on with what there is, unless its entry says how long it
may wait for more: whole batches cost less each, and wait longer. Nothing that waits here has been
read yet, as far as positions, watermarks and accounts are concerned: whoever takes over reads it
again.

**Times** (`BatchTimer`): a few looks at the clock a batch, never one a segment. Reading, applying
and writing follow each other, so each mark ends one of them and begins the next. Time during which
a destination refuses is no work: it is reported as back-pressure instead.
"""

from __future__ import annotations

from onyx.base.seams import Clock
from onyx.codec.segments import bytes_each
from onyx.flow.batch import Read, Segments, format_of, of_runs, runs_of
from onyx.model.job import CatalogEntry
from onyx.plugins.protocol import Around, Cursor
from onyx.plugins.segment_runs import SegmentRuns
from onyx.program.plugin_forms import SegmentsReader
from onyx.telemetry.catalog import BACKPRESSURED_SECONDS
from onyx.telemetry.interface import TaskMetrics
from onyx.telemetry.recorder import ROOTS_MAX

FIRST_EXPONENT = 7
"""A task begins with batches of 128 segments."""

LARGEST_EXPONENT = ROOTS_MAX.bit_length() - 1
"""Larger batches are taken apart for the flight recorder."""

SEGMENTS_MAX = 4_096
"""The number of segments. As dicts they take some 300 bytes each."""

BATCH_BYTES_MAX = 2_097_152
"""The size of the segments of a batch, encoded; about. As dicts they take some ten times as much
memory."""

CPU_ENOUGH_S = 0.005

COLUMNS_CPU_ENOUGH_S = 0.02

TIME_MAX_S = 0.1
"""For as long a batch holds up the other tasks of its thread, and its own first segment."""

TIME_MARGIN = 2.5
"""Twice the size, and the noise."""

COSTLY_MAX_S = 1.0
"""The time for batches that take so long mostly because of what each costs."""

COST_SHARE_MAX = 0.25

SAMPLED_EVERY_BATCHES = 8
"""Sizes are looked at so rarely while the size of the batch stays, because to look is to encode."""

FORGETTING = 8
"""A rising time, and falling bytes, are followed by one part in so many at each batch."""

PENDING_MIN = 10_000

PENDING_BATCHES = 8


# --- sizes --------------------------------------------------------------------------------------


class BatchSizing:
    """The batch size of one task on one peer. Not thread-safe."""

    def __init__(self, entry: CatalogEntry) -> None:
        self._exponent = FIRST_EXPONENT
        self._times_s: dict[int, float] = {}
        """The times of batches by the exponent of their size."""
        self._bytes_each = 0.0
        self._made_of_each = 1.0
        """How many segments a task makes of one, at least 1."""
        self._unsampled = SAMPLED_EVERY_BATCHES
        self._full = False
        self._halvings = 0
        self.fixed = False
        """The manifest, or a person, says the size; nobody need report what batches take."""
        self.segments_max = 1
        """Most segments that the next batch may have."""
        self.change(entry)

    def change(self, entry: CatalogEntry) -> None:
        """Follow other values of `batchSize` and `maxPending`."""
        self.fixed = entry.batch_size is not None
        self._fixed_pending = entry.max_pending
        self._fixed_size = entry.batch_size
        self._set()

    def halve(self, times: int) -> None:
        """Have as much at once as is left after so many halvings, whatever the manifest says, and
        as much in flight. From any thread."""
        if times != self._halvings:
            self._halvings = times
            self._set()

    def _set(self) -> None:
        self.segments_max = max(1, (self._fixed_size or self._bounded()) >> self._halvings)

    @property
    def emitted_max(self) -> int:
        """Segments of a batch that is sent from the state log. How many the task takes at once says
        nothing of them: of one that makes 100,000 it takes one at a time."""
        return max(self.segments_max, SEGMENTS_MAX)

    @property
    def pending_max(self) -> int:
        """Segments in flight at which an input stops reading: `maxPending`, or enough to keep all
        tasks busy with batches of this size."""
        if self._fixed_pending:
            return max(1, self._fixed_pending >> self._halvings)
        return max(PENDING_MIN >> self._halvings, PENDING_BATCHES * self.segments_max)

    def taken(self, waiting: int) -> None:
        """A batch has been taken.

        Args:
            waiting: segments that were there to be taken, as far as that is known.
        """
        self._full = waiting >= self.segments_max

    @property
    def full(self) -> bool:
        """Whether the batch taken last is as large as it may be."""
        return self._full

    @property
    def wants_cpu(self) -> bool:
        """Whether the CPU time of the next batch may change the size: only if that one is full, as
        a batch mostly is that follows on a full one."""
        return self._full and not self.fixed

    def done(self, segments: Segments, made: int, busy_s: float, cpu_s: float | None) -> None:
        """The batch taken last is processed.

        Args:
            segments: of the batch.
            made: how many segments the task has made of it.
            busy_s: time spent on it: reading, applying and writing, without waiting for a
                destination.
            cpu_s: of the processor, in that time; None: not measured (`wants_cpu`).
        """
        if self.fixed or not len(segments):
            return
        exponent = (len(segments) * 4 // 3).bit_length() - 1
        took_s = self._note(exponent, busy_s * (1 << exponent) / len(segments))
        before, limited = self._exponent, format_of(segments).of_objects
        self._made_of_each = _follow(self._made_of_each, max(1.0, made / len(segments)))
        costly = self._costly(exponent, took_s)
        if took_s > (COSTLY_MAX_S if costly else TIME_MAX_S):
            self._exponent = max(0, min(self._exponent, exponent) - 1)
        elif limited and not (costly or self._fits(exponent)):
            self._exponent = max(0, min(self._exponent, exponent - 1))
            self._times_s.pop(exponent - 2, None)  # a wrong time of it may have made the size grow
        elif (
            cpu_s is not None
            and self._full
            and exponent >= self._exponent
            and (costly or not limited or self._fits(exponent + 1))
            and self._may_grow(exponent, took_s, cpu_s, limited)
        ):
            self._exponent = min(LARGEST_EXPONENT, exponent + 1)
        self._sample(segments, changed=self._exponent != before)
        self._set()

    def _fits(self, exponent: int) -> bool:
        """Whether a batch of dicts, and what is made of it, are not too many for the cache."""
        return self._made_of_each * (1 << exponent) <= SEGMENTS_MAX

    def _note(self, exponent: int, took_s: float) -> float:
        known_s = self._times_s.get(exponent, took_s)
        if took_s > known_s:
            took_s = known_s + (took_s - known_s) / FORGETTING
        self._times_s[exponent] = took_s
        return took_s

    def _may_grow(self, exponent: int, took_s: float, cpu_s: float, of_objects: bool) -> bool:
        """Whether a batch has little work, or costs much, or that is to be found out. What waits
        instead of working has little CPU time, so twice the size must not take too long."""
        enough_s = CPU_ENOUGH_S if of_objects else COLUMNS_CPU_ENOUGH_S
        if cpu_s < enough_s and took_s * TIME_MARGIN < TIME_MAX_S:
            return True
        unknown = self._times_s.keys().isdisjoint((exponent - 1, exponent + 1))
        return unknown or self._costly(exponent, took_s)

    def _costly(self, exponent: int, took_s: float) -> bool:
        """Whether what a batch of this size costs is much of its time, as far as that is known."""
        half_s = self._times_s.get(exponent - 1)
        if half_s is not None:
            return 2 * half_s - took_s > COST_SHARE_MAX * took_s
        twice_s = self._times_s.get(exponent + 1)
        return twice_s is not None and 2 * took_s - twice_s > COST_SHARE_MAX * took_s

    def _sample(self, segments: Segments, changed: bool) -> None:
        self._unsampled += 1
        if not changed and self._unsampled < SAMPLED_EVERY_BATCHES:
            return
        self._unsampled = 0
        self._bytes_each = _follow(self._bytes_each, bytes_each(segments))

    def _bounded(self) -> int:
        most = ROOTS_MAX / self._made_of_each
        if self._bytes_each:
            most = min(most, BATCH_BYTES_MAX / self._bytes_each)
        return max(1, min(1 << self._exponent, int(most)))


def _follow(known: float, found: float) -> float:
    """What is known after another look: it rises at once and falls slowly."""
    return found if found >= known else known - (known - found) / FORGETTING


# --- filling ------------------------------------------------------------------------------------


class Filling:
    """When a batch that is not whole has waited long enough."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._clock = clock
        self._since_s: float | None = None

    def over(self, waiting: int, wanted: int) -> bool:
        """Whether to go on with so many segments that wait, of so many that make a batch."""
        if not waiting or waiting >= wanted or not self.timeout_s:
            self._since_s = None
            return True
        now_s = self._clock.monotonic_s()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self.timeout_s:
            return False
        self._since_s = None
        return True


class FilledReader(Around):
    """A reader that gives whole batches, or what has come when the first of it has waited long
    enough (`batchTimeout`)."""

    def __init__(self, reader: SegmentsReader, clock: Clock, timeout_s: float) -> None:
        self._reader = self.beneath = reader
        self._held = SegmentRuns()
        self._filling = Filling(clock, timeout_s)
        self._hurried = False

    def change_timeout(self, timeout_s: float) -> None:
        """Wait for as long from now on; one that hurries waits for nothing any more."""
        if not self._hurried:
            self._filling.timeout_s = timeout_s

    def read(self, segments_max: int) -> Read:
        """A whole batch of so many, or what has waited long enough; else nothing."""
        held = self._held
        if not self._filling.timeout_s and not len(held):
            return self._reader.read(segments_max)
        if len(held) < segments_max:
            for run in runs_of(self._reader.read(segments_max - len(held))):
                held.append(run)
        if not self._reader.exhausted() and not self._filling.over(len(held), segments_max):
            return []
        found = held.between(0, segments_max)
        held.drop(min(segments_max, len(held)))
        return of_runs(found) if found else []

    def exhausted(self) -> bool:
        """True when everything was read and nothing will ever follow."""
        return not len(self._held) and self._reader.exhausted()

    def cursor(self, position: int) -> Cursor:
        """The nearest known cursor at or before `position`."""
        return self._reader.cursor(position)

    def close(self) -> None:
        """Release the partition; nothing is read afterwards."""
        self._reader.close()

    def hurry(self) -> None:
        """Give what there is at once from now on."""
        self._hurried = True
        self._filling.timeout_s = 0.0


# --- times --------------------------------------------------------------------------------------


class BatchTimer:
    """The times of batches of one task. `begin`, `read`, `applied`, `written` in this order;
    `report` at the end."""

    __slots__ = (
        "_apply_s",
        "_began_cpu_s",
        "_clock",
        "_cpu_s",
        "_held",
        "_mark_s",
        "_read_s",
        "_write_s",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mark_s = self._read_s = self._apply_s = self._write_s = 0.0
        self._cpu_s = 0.0
        self._began_cpu_s: float | None = None
        self._held = False

    def begin(self, cpu: bool = False) -> None:
        """A batch is about to be read.

        Args:
            cpu: measure its CPU time as well, which takes two calls of the kernel.
        """
        self._mark_s = self._clock.monotonic_s()
        self._began_cpu_s = self._clock.thread_cpu_s() if cpu else None
        self._held = False

    def read(self) -> None:
        """The batch has been read."""
        self._read_s = self._lap_s()

    def applied(self) -> None:
        """The function has been applied."""
        self._apply_s = self._lap_s()

    def refused(self, metrics: TaskMetrics) -> None:
        """A destination has no room (still)."""
        self._handed_over(metrics)
        self._held = True

    def written(self, metrics: TaskMetrics) -> None:
        """Every destination has taken its part."""
        self._handed_over(metrics)

    def _handed_over(self, metrics: TaskMetrics) -> None:
        if self._held:
            metrics.add(BACKPRESSURED_SECONDS, self._lap_s())
        else:
            self._write_s = self._lap_s()
            if self._began_cpu_s is not None:
                self._cpu_s = self._clock.thread_cpu_s() - self._began_cpu_s

    def report(self, metrics: TaskMetrics, read: int, written: int) -> None:
        """Report the batch: segments read and written, and where its time went."""
        metrics.batch(read, written, self._read_s, self._apply_s, self._write_s)

    def busy_s(self, reading: bool) -> float:
        """Spent on the batch, without back-pressure.

        Args:
            reading: count reading it too. A source may wait in it for what is not there yet.
        """
        return (self._read_s if reading else 0.0) + self._apply_s + self._write_s

    @property
    def cpu_s(self) -> float | None:
        """Work of this thread on the batch, by the processor; None if that was not measured."""
        return None if self._began_cpu_s is None else self._cpu_s

    def _lap_s(self) -> float:
        before_s, self._mark_s = self._mark_s, self._clock.monotonic_s()
        return self._mark_s - before_s
