"""Counts of tasks in memory that the supervisor holds, and that outlives the process.

A worker process that is killed takes its metrics with it, those that nobody has scraped since. So
what `onyx run` sums up is counted here as well, beside the flight recorder. Each peer on a task has
a row of its own, which only it writes. Rows stay when their process ends: the next one goes on
with them. The first error of a task stands there as text.

Scraping more often was rejected: what a process did last is lost all the same. So was a file for
each task: this needs no system call.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec

from onyx.ids import JobId, TaskName
from onyx.outcomes import NOTHING, TaskTotals
from onyx.telemetry.catalog import (
    ANSWERED,
    DEAD_LETTERS,
    ERRORS,
    LATE_SEGMENTS,
    RETRIES,
    SOURCE_OFFSET,
    UNMATCHED,
    Metric,
)
from onyx.telemetry.interface import TaskMetrics

ROWS = 2_048
"""Peers on tasks, of all jobs that a process has worked on; those beyond are not counted here."""
NOTE_BYTES_MAX = 900
_KEY = 16
_COUNTS: tuple[Metric, ...] = (
    SOURCE_OFFSET, RETRIES, ERRORS, DEAD_LETTERS, UNMATCHED, LATE_SEGMENTS, ANSWERED,
)  # fmt: skip
"""Cells 2 and following of a row, in the order of `TaskTotals`; 0 and 1 are segments in and out."""
_CELLS = {metric: cell for cell, metric in enumerate(_COUNTS, 2)}
_CELL_COUNT = 2 + len(_COUNTS)
_NOTES = {DEAD_LETTERS: 0, UNMATCHED: 1, ANSWERED: 2}
_FIRST_CELL = _KEY
_FIRST_NOTE = _FIRST_CELL + 8 * _CELL_COUNT
_NOTE = struct.Struct(f"<H{NOTE_BYTES_MAX}s")
_ROW = (_FIRST_NOTE + len(_NOTES) * _NOTE.size + 63) // 64 * 64
SIZE = ROWS * _ROW
_FREE = bytes(_KEY)

Key = tuple[JobId, TaskName]


class KeptCounts:
    """The rows of one process, as the process and its supervisor see them.

    Args:
        memory: shared by both.
        start: of `SIZE` bytes in it, divisible by 8.
    """

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        self._memory = memory
        self._start = start
        self._lock = threading.Lock()
        self._left: dict[bytes, list[int]] = {}
        self._used = 0
        self.known: dict[Key, TaskTotals] = {}
        """What this process has worked on, with what processes before it had counted."""
        for key in self._keys():
            self._left.setdefault(key, []).append(self._used)
            self._used += 1

    def metrics(self, job: JobId, task: TaskName, inner: TaskMetrics) -> TaskMetrics:
        """For one virtual peer on one task, counted here and in `inner`; it closes both."""
        key = job, task
        digest = _digest(key)
        with self._lock:
            if key not in self.known:
                self.known[key] = self.totals([key])[key]
            left = self._left.get(digest)
            if left:
                row = left.pop()
            elif self._used == ROWS:
                return inner
            else:
                row, self._used = self._used, self._used + 1
                at = self._start + row * _ROW
                self._memory[at : at + _KEY] = digest
        return _Counted(self._row(row), inner, lambda: self._leave(digest, row))

    def totals(self, keys: Iterable[Key]) -> dict[Key, TaskTotals]:
        """The totals of these tasks of jobs, in the order given. From any process that has the
        memory."""
        found = dict.fromkeys(keys, NOTHING)
        wanted = {_digest(key): key for key in found}
        for row, digest in enumerate(self._keys()):
            key = wanted.get(digest)
            if key is not None:
                found[key] += self._row(row).totals()
        return found

    def _keys(self) -> Iterable[bytes]:
        for row in range(ROWS):
            at = self._start + row * _ROW
            key = self._memory[at : at + _KEY]
            if key == _FREE:
                return
            yield key

    def _row(self, row: int) -> _Row:
        start = self._start + row * _ROW
        at = start + _FIRST_CELL
        cells = memoryview(self._memory)[at : at + 8 * _CELL_COUNT].cast("q")
        return _Row(cells, self._memory, start + _FIRST_NOTE)

    def _leave(self, digest: bytes, row: int) -> None:
        with self._lock:
            self._left.setdefault(digest, []).append(row)


class _Row(msgspec.Struct, frozen=True):
    cells: memoryview
    memory: mmap.mmap
    notes: int

    def note(self, number: int) -> str:
        length, text = _NOTE.unpack_from(self.memory, self.notes + number * _NOTE.size)
        return bytes(text[:length]).decode("utf-8", "replace")

    def set_note(self, number: int, text: str) -> None:
        data = text.encode("utf-8", "replace")[:NOTE_BYTES_MAX]
        data = data.decode("utf-8", "ignore").encode()
        _NOTE.pack_into(self.memory, self.notes + number * _NOTE.size, len(data), data)

    def totals(self) -> TaskTotals:
        read, written, completed, retried, errors, letters, unmatched, late, answered = self.cells
        return TaskTotals(
            read, written, completed, retried, errors, letters, unmatched, late, answered,
            self.note(0), self.note(1), self.note(2),
        )  # fmt: skip


class _Counted(TaskMetrics):
    """Metrics with the labels (job, task), of one virtual peer."""

    __slots__ = ("_cells", "_inner", "_leave", "_row", "_values")

    def __init__(self, row: _Row, inner: TaskMetrics, leave: Callable[[], None]) -> None:
        self._row = row
        self._cells = row.cells
        self._inner = inner
        self._leave: Callable[[], None] | None = leave
        self._values: dict[Metric, int] = {}

    def batch(
        self,
        read: int,
        written: int,
        read_s: float = 0.0,
        apply_s: float = 0.0,
        write_s: float = 0.0,
    ) -> None:
        """A batch is done: segments taken and emitted, and the seconds spent on each stage."""
        self._cells[0] += read
        self._cells[1] += written
        self._inner.batch(read, written, read_s, apply_s, write_s)

    def add(self, metric: Metric, amount: float = 1) -> None:
        """Add to a counter."""
        cell = _CELLS.get(metric)
        if cell is not None:
            self._cells[cell] += int(amount)
        self._inner.add(metric, amount)

    def set(self, metric: Metric, value: float) -> None:
        """Set the value of this peer in a gauge; `Metric.merge` says what becomes of it."""
        cell = _CELLS.get(metric)
        if cell is not None:
            before, now = self._values.get(metric, 0), int(value)
            self._cells[cell] += now - before
            self._values[metric] = now
        self._inner.set(metric, value)

    def observe(self, metric: Metric, value: float) -> None:
        """Add a value to a histogram."""
        self._inner.observe(metric, value)

    def note(self, metric: Metric, text: Callable[[], str]) -> None:
        """What the first of those is that a counter counts; made only if nothing is known yet."""
        number = _NOTES[metric]
        if not self._row.note(number):
            self._row.set_note(number, text())

    def close(self) -> None:
        """The peer leaves the task."""
        self._inner.close()
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


def summed(of_processes: Sequence[KeptCounts], keys: Sequence[Key]) -> dict[Key, TaskTotals]:
    """The totals of several processes together."""
    found = dict.fromkeys(keys, NOTHING)
    for each in of_processes:
        for key, totals in each.totals(keys).items():
            found[key] += totals
    return found


def _digest(key: Key) -> bytes:
    job, task = key
    text = f"{len(job)} {job} {task}"
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_KEY).digest()
