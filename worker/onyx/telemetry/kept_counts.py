"""Counts of tasks in memory that the supervisor holds, and that outlives the process.

A worker process that is killed takes its metrics with it, those that nobody has scraped since. So
what `onyx run` sums up is counted here as well, beside the flight recorder. Each peer on a task has
a row of its own, which only it writes. Rows stay when their process ends: the next one goes on
with them. The first error of a task stands there as text.

Scraping more often was rejected: what a process did last is lost all the same. So was a file for
each task: this needs no system call.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from onyx.base.path_names import CHARACTERS_MAX
from onyx.ids import GroupId, JobId, TaskName
from onyx.reports.outcomes import NOTHING, TaskTotals
from onyx.telemetry.catalog import (
    ANSWERED,
    DEAD_LETTERS,
    ERRORS,
    LATE_SEGMENTS,
    RETRIES,
    TAKEN_OVER,
    UNMATCHED,
    WITHOUT_ROW,
    Metric,
)
from onyx.telemetry.interface import TaskMetrics
from onyx.telemetry.tallies import Root

ROWS = 2_048
"""Peers on tasks, of all jobs that a process has worked on; those beyond are not counted here."""
NOTE_BYTES_MAX = 900
_NAME = struct.Struct(f"<B{CHARACTERS_MAX}s")
_HEADER = (_NAME.size + 63) // 64 * 64
"""The name of the memory."""
_COUNTS: Mapping[Metric, str] = {
    RETRIES: "retried",
    ERRORS: "errors",
    DEAD_LETTERS: "dead_letters",
    UNMATCHED: "unmatched",
    LATE_SEGMENTS: "late",
    ANSWERED: "answered",
    TAKEN_OVER: "taken_over",
    WITHOUT_ROW: "without_row",
}
"""Cells 2 and following of a row, with their fields of `TaskTotals`; 0 and 1 are segments in and
out."""
_CELLS = {metric: cell for cell, metric in enumerate(_COUNTS, 2)}
_FIELDS = ("segments_in", "segments_out", *_COUNTS.values())
_NOTES = {DEAD_LETTERS: 0, UNMATCHED: 1, ANSWERED: 2}
_NOTE_FIELDS = ("first_dead_letter", "first_unmatched", "first_answered")
_FIRST_CELL = (2 * _NAME.size + 7) // 8 * 8
"""Behind the names of job and task."""
_FIRST_NOTE = _FIRST_CELL + 8 * len(_FIELDS)
_NOTE = struct.Struct(f"<H{NOTE_BYTES_MAX}s")
_ROW = (_FIRST_NOTE + len(_NOTES) * _NOTE.size + 63) // 64 * 64
SIZE = _HEADER + ROWS * _ROW

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
        self._left: dict[Key, list[int]] = {}
        self._used = 0
        self._working: Counter[JobId] = Counter()
        for key in self.tasks():
            self._left.setdefault(key, []).append(self._used)
            self._used += 1

    def name(self, group: GroupId) -> GroupId:
        """The name of the memory: the first group that has reported what stands here."""
        if not (name := self._text(self._start)):
            _NAME.pack_into(self._memory, self._start, len(group), group.encode())
        return GroupId(name or group)

    def metrics(self, job: JobId, task: TaskName, inner: TaskMetrics) -> TaskMetrics:
        """For one virtual peer on one task, counted here and in `inner`; it closes both."""
        key = job, task
        names = [name.encode() for name in key]
        with self._lock:
            left = self._left.get(key)
            if left:
                row = left.pop()
            elif self._used == ROWS or max(map(len, names)) > CHARACTERS_MAX:
                return inner
            else:
                row, self._used = self._used, self._used + 1
                for number, name in enumerate(names):
                    _NAME.pack_into(
                        self._memory, self._at(row) + number * _NAME.size, len(name), name
                    )
            self._working[job] += 1
        return _Counted(self._row(row), inner, lambda: self._leave(key, row))

    def works_on(self, job: JobId) -> bool:
        """Whether a peer of this process counts for a job."""
        return self._working[job] > 0

    def totals(self, keys: Iterable[Key]) -> dict[Key, TaskTotals]:
        """The totals of these tasks of jobs, in the order given. From any process that has the
        memory."""
        found = dict.fromkeys(keys, NOTHING)
        for row, key in enumerate(self.tasks()):
            if key in found:
                found[key] += self._row(row).totals()
        return found

    def tasks(self) -> Iterator[Key]:
        """The tasks of jobs that are counted here, once for each row."""
        for row in range(ROWS):
            at = self._at(row)
            job = self._text(at)
            if not job:
                return
            yield JobId(job), TaskName(self._text(at + _NAME.size))

    def _text(self, at: int) -> str:
        length, text = _NAME.unpack_from(self._memory, at)
        return bytes(text[:length]).decode()

    def _at(self, row: int) -> int:
        return self._start + _HEADER + row * _ROW

    def _row(self, row: int) -> _Row:
        start = self._at(row)
        at = start + _FIRST_CELL
        cells = memoryview(self._memory)[at : at + 8 * len(_FIELDS)].cast("q")
        return _Row(cells, self._memory, start + _FIRST_NOTE)

    def _leave(self, key: Key, row: int) -> None:
        with self._lock:
            self._left.setdefault(key, []).append(row)
            self._working[key[0]] -= 1


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
        fields: dict[str, Any] = dict(zip(_FIELDS, self.cells, strict=True))
        fields |= {field: self.note(number) for number, field in enumerate(_NOTE_FIELDS)}
        return TaskTotals(**fields)


class _Counted(TaskMetrics):
    """Metrics with the labels (job, task), of one virtual peer."""

    __slots__ = ("_cells", "_inner", "_leave", "_row", "tally")

    def __init__(self, row: _Row, inner: TaskMetrics, leave: Callable[[], None]) -> None:
        self._row = row
        self._cells = row.cells
        self._inner = inner
        self.tally = inner.tally
        self._leave: Callable[[], None] | None = leave

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

    def completed(self, seconds: float, segments: int, root: Root | None = None) -> None:
        """The trees of so many segments of an input are processed, so long after they were read;
        `root` is one of these."""
        self._inner.completed(seconds, segments, root)

    def add(self, metric: Metric, amount: float = 1) -> None:
        """Add to a counter."""
        cell = _CELLS.get(metric)
        if cell is not None:
            self._cells[cell] += int(amount)
        self._inner.add(metric, amount)

    def set(self, metric: Metric, value: float) -> None:
        """Set the value of this peer in a gauge; `Metric.merge` says what becomes of it."""
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
