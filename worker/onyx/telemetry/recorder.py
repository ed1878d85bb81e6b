"""The flight recorder of a worker process: the segments over which the process died.

A user's function can end its process (`os._exit`, a crash in a C library), and then no code of ours
runs any more. So before user code runs over a batch, the task records the job, the task and the
segments, in memory that the supervisor holds and that outlives the process. That costs a copy of
the roots for each batch, and nothing for each segment. When a process has died by itself, the
supervisor reads the recorder (`processes.exit_examiner`) and hands the losses to the next process,
which reports them to the cluster.

Two threads may be inside user code at once, and then either may be the cause. So a task may ask to
be `alone` there, and others wait meanwhile. Functions that take long are waited for, since a death
among others leaves in doubt whose it was and the next process dies as well; but in turns, so that
one that never comes back does not hold up everybody else of the process.

Where a whole container is killed, as for want of memory in Kubernetes, the supervisor dies as well.
So the memory may be a file in a folder that outlives the container, and the next supervisor there
reads what is left (`left_in`). Its blocks are there from the start: on a full disk a process that
writes into a mapped file would be killed. Who made it holds a lock, which ends with the processes.

Rejected: a file for each batch (a system call each), a child process for each suspicious batch
(state and plugins are in this process), the traceback that Python writes at a fatal signal (there
is none for `_exit`). No NumPy here: the supervisor is to stay small.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import msgspec

from onyx.base.seams import Clock
from onyx.base.structs import UNREADABLE
from onyx.ids import JobId, TaskName
from onyx.telemetry import kept_counts
from onyx.telemetry.kept_counts import KeptCounts

SLOTS = 128
"""Tasks of one process that are recorded; those beyond are not."""
ROOTS_MAX = 65_536
"""Segments of one batch; larger ones are worked off in parts where that matters."""
NAME_BYTES_MAX = 1_024
SUFFIX = ".recorder"
"""The end of the names of files that are recorders."""
LOSSES_BYTES_MAX = 262_144
ALONE_WAIT_FIRST_S = 5.0
"""For the others to leave user code. Then they go on for as long, and are waited for twice as long
the next time."""
ALONE_WAIT_MAX_S = 60.0
"""Who has waited for so long in vain goes among the others: one of them does not come back."""
RESERVED_S = 0.5
"""Who waits or was to be alone and does not ask again for so long has gone away."""

_HEADER = struct.Struct("<BBHHHQQ")
"""Inside?, whether over segments and how they are given (in slot 0 the exit code), bytes of job,
task and phase, id of the segment, segments."""
_NUMBER = struct.Struct("<Q")
_LENGTH = struct.Struct("<H")
_RUN = 2
"""How segments are given: by the first root, and as many follow it as there are segments."""
UNNAMED = b""
"""In the place of roots: segments that have none, which do not come again."""
_NAMES = _HEADER.size
_ROOTS = 4_096
_SLOT = _ROOTS + 8 * ROOTS_MAX
_LOSSES = _SLOT * (SLOTS + 1)
"""Slot 0 is of the process itself."""
_COUNTS = (_LOSSES + 4 + LOSSES_BYTES_MAX + 63) // 64 * 64
SIZE = _COUNTS + kept_counts.SIZE
_PLACES = _NAMES + 3 * NAME_BYTES_MAX
_PLACES_BYTES_MAX = _ROOTS - _PLACES - 2
assert _PLACES_BYTES_MAX > 900


class Slot(Protocol):
    """The slot of one task."""

    def begin(self, phase: str, roots: Any, id: int, alone: bool) -> bool:
        """User code is about to run; False when it must wait, because somebody is or wants to be
        alone there.

        Args:
            phase: of the task.
            roots: column of the batch, an array or a run (`base.runs`); `UNNAMED`, or None: it runs
                over no segments.
            id: of the only segment, 0 where there are several.
            alone: nobody else of the process may be in user code meanwhile.
        """
        ...

    def end(self) -> None:
        """It has returned."""
        ...

    def close(self) -> None:
        """The task has ended."""
        ...


class NumberedPartitions(Protocol):
    """Where the partitions of a source are among those of its job."""

    @property
    def first(self) -> int:
        """The number of its first one."""
        ...

    @property
    def count(self) -> int:
        """How many there are."""
        ...


Places = Callable[[], Mapping[TaskName, NumberedPartitions]]
"""The sources of a job whose partitions have numbers: the same object as long as they do."""
_NOWHERE = dict[TaskName, NumberedPartitions]()


class Recording(Protocol):
    """What a process that is recorded, or not, has for its tasks."""

    def slot(self, job: JobId, task: TaskName, places: Places = lambda: _NOWHERE) -> Slot:
        """Where a task notes what it does; until it closes it."""
        ...


class NoRecorder:
    """The recorder of a process that nobody looks after."""

    def slot(self, job: JobId, task: TaskName, places: Places = lambda: _NOWHERE) -> Slot:
        """A slot that records nothing."""
        return NOT_RECORDED


class Inside(msgspec.Struct, frozen=True):
    """What one task was doing."""

    job: JobId
    task: TaskName
    phase: str
    over_segments: bool
    roots: tuple[int, ...]
    """Empty if they have none."""
    id: int
    """The id of the segment, if it was one; otherwise 0."""
    places: tuple[tuple[TaskName, int, int], ...] = ()
    """Sources, each with the number of its first partition within the job, and how many it has."""

    def place(self, partition: int) -> str:
        """A partition as its source numbers it, in words; a job numbers those of all its tasks."""
        for source, first, count in self.places:
            if first <= partition < first + count:
                return f"partition {partition - first} of {source}"
        return f"partition {partition} of the job"


def create(path: str = "") -> int:
    """The file descriptor of an empty recorder, without a name in any folder unless one is given.

    Raises:
        OSError: there is such a file, or no room for it.
    """
    if path:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(made, fcntl.LOCK_EX)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(made, 0, SIZE)
            os.ftruncate(made, SIZE)
        except OSError:
            os.close(made)
            os.unlink(path)
            raise
        return made
    if hasattr(os, "memfd_create"):
        made = os.memfd_create("onyx-recorder")
    else:
        with tempfile.TemporaryFile() as file:
            made = os.dup(file.fileno())
    os.ftruncate(made, SIZE)
    return made


def left_in(folder: str) -> Iterator[int]:
    """The recorders in a folder whose makers are gone, each open until the next one is asked for;
    they are removed.

    Raises:
        OSError: the folder cannot be read, or written.
    """
    names = os.listdir(folder) if os.path.isdir(folder) else []
    for name in sorted(each for each in names if each.endswith(SUFFIX)):
        path = os.path.join(folder, name)
        found = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
            if os.fstat(found).st_size == SIZE:
                yield found
        except BlockingIOError:  # somebody writes it
            continue
        finally:
            os.close(found)


class Recorder:
    """The recorder as both sides see it.

    Args:
        descriptor: from `create`, perhaps inherited.
        clock: how long to wait for being alone.
    """

    def __init__(self, descriptor: int, clock: Clock) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)
        self._clock = clock
        self.counts = KeptCounts(self._memory, _COUNTS)
        """What the tasks of the process have done, and of those before it."""
        self._lock = threading.Lock()
        self._free = list(range(SLOTS, 0, -1))
        self._inside = 0
        self._alone: object | None = None
        """Who is, or waits to be."""
        self._asked_s = 0.0
        self._since_s = 0.0
        self._patience_s = ALONE_WAIT_FIRST_S
        self._next_turn_s = 0.0
        """The others go on until then."""
        self._shared_until_s = 0.0
        """Nobody waits to be alone until then."""

    # --- the worker -----------------------------------------------------------------------------

    def slot(self, job: JobId, task: TaskName, places: Places = lambda: _NOWHERE) -> Slot:
        """Where a task notes what it does; until it closes it."""
        with self._lock:
            if not self._free:
                return NOT_RECORDED
            return _Slot(self, self._memory, self._free.pop(), job, task, places)

    def ends(self, code: int) -> None:
        """The process is about to end in an orderly way, with this code."""
        _HEADER.pack_into(self._memory, 0, 1, code, 0, 0, 0, 0, 0)

    def enter(self, who: object, alone: bool) -> bool:
        """Whether `who` may run user code now."""
        with self._lock:
            if self._alone is None and not alone:
                self._inside += 1
                return True
            now_s = self._clock.monotonic_s()
            if self._alone is not None and self._alone is not who:
                if self._inside or now_s - self._asked_s < RESERVED_S:
                    return False
                self._alone = None
            if alone and self._inside and not self._in_vain(who, now_s):
                return False
            if alone and not self._inside:
                self._alone, self._patience_s = who, ALONE_WAIT_FIRST_S
            else:
                self._alone = None
            self._inside += 1
            return True

    def leave(self, who: object) -> None:
        """The task comes out of user code. If it was alone there it may have more to try alone, and
        need not wait for the others again."""
        with self._lock:
            self._inside -= 1
            if self._alone is who:
                self._asked_s = self._clock.monotonic_s()

    def release(self, slot: int, who: object) -> None:
        """The task has ended: its slot is free for another."""
        with self._lock:
            self._free.append(slot)
            if self._alone is who:
                self._alone = None

    def _in_vain(self, who: object, now_s: float) -> bool:
        """Reserve, in turns; whether `who` has waited for so long that it goes among the others."""
        if now_s < self._shared_until_s:
            return True
        if now_s < self._next_turn_s:
            return False
        if self._alone is not who:
            self._alone, self._since_s = who, now_s
        self._asked_s = now_s
        if now_s - self._since_s < self._patience_s:
            return False
        self._alone, self._next_turn_s = None, now_s + self._patience_s
        if self._patience_s < ALONE_WAIT_MAX_S:
            self._patience_s = min(2 * self._patience_s, ALONE_WAIT_MAX_S)
            return False
        self._shared_until_s = self._next_turn_s
        return True

    # --- the supervisor -------------------------------------------------------------------------

    def orderly(self) -> int | None:
        """The code with which the process meant to end; None when it did not mean to."""
        ended, code, *_ = _HEADER.unpack_from(self._memory, 0)
        return code if ended else None

    def deaths(self) -> list[Inside]:
        """Who was in user code when the process died."""
        found = []
        for slot in range(1, SLOTS + 1):
            start = slot * _SLOT
            inside, over, *lengths, id, count = _HEADER.unpack_from(self._memory, start)
            if not inside:
                continue
            at, names = start + _NAMES, []
            for length in lengths:
                names.append(self._memory[at : at + length].decode("utf-8", "replace"))
                at += length
            job, task, phase = names
            roots = self._roots(start + _ROOTS, over, min(count, ROOTS_MAX))
            inside_of = Inside(JobId(job), TaskName(task), phase, bool(over), roots, id)
            places = self._places(start + _PLACES) if roots else ()
            found.append(msgspec.structs.replace(inside_of, places=places))
        return found

    def _places(self, at: int) -> tuple[tuple[TaskName, int, int], ...]:
        (length,) = _LENGTH.unpack_from(self._memory, at)
        text = self._memory[at + 2 : at + 2 + min(length, _PLACES_BYTES_MAX)]
        try:
            found = msgspec.json.decode(text, type=tuple[tuple[TaskName, int, int], ...])
        except UNREADABLE:
            return ()
        return found

    def _roots(self, first: int, over: int, count: int) -> tuple[int, ...]:
        if over == _RUN:
            (root,) = _NUMBER.unpack_from(self._memory, first)
            return tuple(range(root, root + count))
        return tuple(memoryview(self._memory[first : first + 8 * count]).cast("Q"))

    def jobs(self) -> list[JobId]:
        """The jobs whose user code has run, in the processes before too."""
        found: dict[JobId, None] = {}
        for slot in range(1, SLOTS + 1):
            start = slot * _SLOT
            _, _, length, *_ = _HEADER.unpack_from(self._memory, start)
            at = start + _NAMES
            if length:
                found[JobId(self._memory[at : at + length].decode("utf-8", "replace"))] = None
        return list(found)

    def clear(self) -> None:
        """For the next process; losses stay."""
        for slot in range(SLOTS + 1):
            self._memory[slot * _SLOT] = 0

    # --- between processes ----------------------------------------------------------------------

    def losses(self) -> bytes:
        """What was handed over and has not been reported yet; empty when nothing was."""
        (length,) = struct.unpack_from("<I", self._memory, _LOSSES)
        return self._memory[_LOSSES + 4 : _LOSSES + 4 + min(length, LOSSES_BYTES_MAX)]

    def keep(self, losses: bytes) -> None:
        """Hand over, at most `LOSSES_BYTES_MAX`."""
        assert len(losses) <= LOSSES_BYTES_MAX, "the caller bounds them"
        struct.pack_into("<I", self._memory, _LOSSES, 0)
        self._memory[_LOSSES + 4 : _LOSSES + 4 + len(losses)] = losses
        struct.pack_into("<I", self._memory, _LOSSES, len(losses))


class _Slot:
    """Not thread-safe: a task is on one thread at a time."""

    def __init__(
        self,
        recorder: Recorder,
        memory: mmap.mmap,
        number: int,
        job: JobId,
        task: TaskName,
        places: Places,
    ) -> None:
        self._recorder = recorder
        self._memory = memory
        self._number = number
        self._start = number * _SLOT
        self._names = (_cut(job), _cut(task))
        self._places = places
        self._noted: Mapping[TaskName, NumberedPartitions] | None = None
        self._texts: dict[str, tuple[bytes, tuple[int, int, int]]] = {}
        """Names with each phase, as they are written, and their lengths."""
        self._phase = ""
        self._roots: Any = self
        """What stands there: a batch goes through several phases."""

    def begin(self, phase: str, roots: Any, id: int, alone: bool) -> bool:
        if not self._recorder.enter(self, alone):
            return False
        if phase != self._phase or roots is not self._roots:
            self._write(phase, roots, id)
        self._memory[self._start] = 1
        return True

    def _write(self, phase: str, roots: Any, id: int) -> None:
        memory, start = self._memory, self._start
        count = 0 if roots is None else min(len(roots), ROOTS_MAX)
        run = getattr(roots, "first", None)
        if count and roots is not self._roots:
            self._note_places()
            first = start + _ROOTS
            if run is None:
                column = roots if count == len(roots) else roots[:count]
                memory[first : first + 8 * count] = memoryview(column).cast("B")
            else:
                _NUMBER.pack_into(memory, first, run)
        text, lengths = self._texts.get(phase) or self._text(phase)
        if phase != self._phase:
            memory[start + _NAMES : start + _NAMES + len(text)] = text
        over = int(roots is not None) if run is None else _RUN
        _HEADER.pack_into(memory, start, 0, over, *lengths, id, count)
        self._phase, self._roots = phase, roots

    def _note_places(self) -> None:
        places = self._places()
        if places is self._noted:
            return
        self._noted = places
        found = [(name, places[name].first, places[name].count) for name in sorted(places)]
        while len(text := msgspec.json.encode(found)) > _PLACES_BYTES_MAX:
            found = found[: len(found) // 2]
        at = self._start + _PLACES
        _LENGTH.pack_into(self._memory, at, len(text))
        self._memory[at + 2 : at + 2 + len(text)] = text

    def _text(self, phase: str) -> tuple[bytes, tuple[int, int, int]]:
        job, task = self._names
        last = phase.encode()
        found = self._texts[phase] = (job + task + last, (len(job), len(task), len(last)))
        return found

    def end(self) -> None:
        self._memory[self._start] = 0
        self._recorder.leave(self)

    def close(self) -> None:
        self._recorder.release(self._number, self)


class _NotRecorded:
    """The slot of a process with too many tasks, or that nobody looks after."""

    def begin(self, phase: str, roots: Any, id: int, alone: bool) -> bool:
        return True

    def end(self) -> None: ...

    def close(self) -> None: ...


NOT_RECORDED: Slot = _NotRecorded()


def _cut(name: str) -> bytes:
    return name.encode()[:NAME_BYTES_MAX]


def runs(roots: Sequence[int], runs_max: int) -> list[tuple[int, int]]:
    """Increasing numbers as runs `(first, last)`, at most so many: the closest are joined."""
    found: list[tuple[int, int]] = []
    for root in sorted(set(roots)):
        if found and root == found[-1][1] + 1:
            found[-1] = (found[-1][0], root)
        else:
            found.append((root, root))
    while len(found) > runs_max:
        gaps = [after[0] - before[1] for before, after in pairwise(found)]
        limit = sorted(gaps)[len(found) - runs_max - 1]
        joined = [found[0]]
        for gap, run in zip(gaps, found[1:], strict=True):
            if gap <= limit:
                joined[-1] = (joined[-1][0], run[1])
            else:
                joined.append(run)
        found = joined
    return found
