"""What this worker measures of its tasks: the document that it answers with (`reports.measures`).

Once in a few seconds it takes down what each task has counted; whoever asks gets the difference of
two such looks, as rates. So one question is enough, and nobody has to ask again to learn a rate.
Like the stall watch it reads attributes of tasks and calls nothing that waits: the thread of a task
may change them meanwhile, or may never come back. A document that falls between two changes may be
a little wrong, and the next one is right.

Rejected: a document beside the log, as stalls and outcomes have. It would be written all the time,
by every worker, for nobody who looks.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from onyx.base.seams import Clock
from onyx.errors import Unavailable
from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.peer.work.task_threads import TaskRunner
from onyx.replica.state import Replica
from onyx.reports.measures import (
    NO_DURATIONS,
    RATE_S,
    WINDOW_S,
    Durations,
    EdgeMeasures,
    InputMeasures,
    Measures,
    PartitionMeasures,
    TaskMeasures,
    WorkerMeasures,
    ZooKeeperMeasures,
    furthest,
)
from onyx.task.source.source import Source
from onyx.task.task import BatchTask, Task

LOOK_S = 2.0
"""Between two looks."""
TRIES = 3
"""A document is begun again when a task has changed while it was looked through."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Key = tuple[JobId, TaskName, PeerId]


class _Look(msgspec.Struct, frozen=True):
    """What one peer on a task has counted by a moment."""

    at_s: float
    read: int
    written: int
    busy_s: float
    held_s: float
    stages: Mapping[str, Durations]
    complete: Durations
    completed: int
    sent: Mapping[TaskName, int]
    waits_for: tuple[TaskName, ...]


class Measuring:
    """The measures of one incarnation. `look` on the group's thread, `document` on any."""

    def __init__(self, group: GroupId, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: dict[Key, deque[_Look]] = {}
        self._runners: tuple[TaskRunner, ...] = ()
        self._position = 0
        self._next_s = 0.0

    def look(self, runners: Collection[TaskRunner], replica: Replica) -> None:
        """Take down what the tasks have counted, if it is time."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        with self._lock:
            self._runners, self._position = tuple(runners), replica.version
            for runner in self._runners:
                self._take_down(runner.task, now_s)
            there = {_key(each.task) for each in self._runners}
            for key in self._looks.keys() - there:
                del self._looks[key]

    def document(self, job: JobId | None = None) -> WorkerMeasures:
        """What is known now of a job, or of all. Raises Unavailable."""
        for _ in range(TRIES):
            with contextlib.suppress(RuntimeError):  # a dict of a task's changed meanwhile
                return self._document(job)
        raise Unavailable(f"the tasks of group {self._group} change faster than they are measured")

    def _take_down(self, task: Task, now_s: float) -> None:
        found = _look(task, now_s)
        if found is None:
            return
        looks = self._looks.setdefault(_key(task), deque())
        looks.append(found)
        while looks[0].at_s < now_s - WINDOW_S:
            looks.popleft()

    def _document(self, job: JobId | None) -> WorkerMeasures:
        now_s = self._clock.monotonic_s()
        with self._lock:
            runners, position = self._runners, self._position
            looks = {key: tuple(its) for key, its in self._looks.items()}
        tasks: list[TaskMeasures] = []
        edges: list[EdgeMeasures] = []
        for runner in runners:
            task = runner.task
            if job is not None and task.job_id != job:
                continue
            passed = Passed(looks.get(_key(task), ()), _look(task, now_s))
            tasks.append(_measured(task, passed, now_s, self._clock.wall_ms()))
            edges += _edges(task, passed)
        one = WorkerMeasures(
            self._group,
            self._clock.wall_ms(),
            tuple(tasks),
            tuple(edges),
            ZooKeeperMeasures(log_position=position),
            _memory_bytes(),
        )
        whole = Measures((one,))
        return replace(one, tasks=whole.tasks, edges=whole.edges)


# --- one task on one peer -----------------------------------------------------------------------


class Passed:
    """What has passed at a peer between looks."""

    def __init__(self, looks: tuple[_Look, ...], now: _Look | None) -> None:
        self.now = now
        self._looks = looks

    def per_s(self, value: Callable[[_Look], float]) -> float:
        """How fast a count has grown of late; one that has begun again counts from there."""
        before = self._before(RATE_S)
        if self.now is None or before is None:
            return 0.0
        grown = value(self.now) - value(before)
        passed_s = max(self.now.at_s - before.at_s, LOOK_S)
        return (value(self.now) if grown < 0 else grown) / passed_s

    def durations(self, value: Callable[[_Look], Durations]) -> Durations:
        """What has been added to durations in the window."""
        before = self._before(WINDOW_S)
        if self.now is None:
            return NO_DURATIONS
        return value(self.now) if before is None else value(self.now).since(value(before))

    def held(self) -> Counter[TaskName]:
        """For each child the part of the looks at which the peer waited for room there."""
        late = [each for each in self._looks if self.now and each.at_s >= self.now.at_s - RATE_S]
        counts = Counter(name for each in late for name in each.waits_for)
        return Counter({name: count / len(late) for name, count in counts.items()})

    def _before(self, age_s: float) -> _Look | None:
        """The newest look that is so old, or the oldest one."""
        if self.now is None or not self._looks:
            return None
        old = [each for each in self._looks if each.at_s <= self.now.at_s - age_s]
        return old[-1] if old else self._looks[0]


def _key(task: Task) -> Key:
    return task.job_id, task.name, task.peer


def _look(task: Task, now_s: float) -> _Look | None:
    """What a task has counted; None before it counts."""
    tally = None if task.metrics is None else task.metrics.tally
    if tally is None:
        return None
    source = source_of(task)
    sent: dict[TaskName, int] = {}
    waits_for: tuple[TaskName, ...] = ()
    if isinstance(task, BatchTask) and task.wired:
        outbox = task.allocation.outbox
        sent, waits_for = dict(outbox.sent), outbox.waits_for()
    return _Look(
        now_s,
        int(tally.size.total),
        tally.written,
        tally.busy_s,
        tally.held_s,
        {stage: each.durations() for stage, each in tally.stages().items()},
        tally.complete.durations(),
        0 if source is None else source.completed,
        sent,
        waits_for,
    )


def _measured(task: Task, passed: Passed, now_s: float, wall_ms: int) -> TaskMeasures:
    source, queue, queue_max, watermark_ms = source_of(task), 0, 0, None
    if isinstance(task, BatchTask) and task.wired and (source is None or task.runtime.sink):
        queue = task.allocation.inbox.waiting_segments()
        queue_max = task.runtime.services.settings.task.inbox_segments_max
    busy = min(1.0, passed.per_s(lambda look: look.busy_s))
    stages = {} if passed.now is None else passed.now.stages
    return TaskMeasures(
        job=task.job_id,
        task=task.name,
        peers=1,
        phase={task.phase.value: 1},
        in_per_s=passed.per_s(lambda look: look.read),
        out_per_s=passed.per_s(lambda look: look.written),
        busy=busy,
        busiest=busy,
        backpressured=min(1.0, passed.per_s(lambda look: look.held_s)),
        stages={stage: passed.durations(_of_stage(stage)) for stage in stages},
        queue_segments=queue,
        queue_max=queue_max,
        watermark_ms=watermark_ms,
        input=None if source is None else _of_source(source, passed, now_s, wall_ms),
    )


def _of_source(source: Source, passed: Passed, now_s: float, wall_ms: int) -> InputMeasures:
    partitions = tuple(source.partitions.values())
    newest = [each.newest_ms for each in partitions if each.newest_ms is not None]
    return InputMeasures(
        partitions=len(partitions),
        in_flight=source.in_flight,
        completed_per_s=passed.per_s(lambda look: look.completed),
        oldest_open_s=source.oldest_open_s(now_s),
        complete=passed.durations(lambda look: look.complete),
        event_time_ms=min(newest, default=None),
        slowest=furthest(
            PartitionMeasures(each.name, each.position, each.window.in_flight)
            for each in partitions
        ),
    )


def _edges(task: Task, passed: Passed) -> Iterator[EdgeMeasures]:
    """What the peer sends, and what waits for it, each by the task at the other end."""
    if not (isinstance(task, BatchTask) and task.wired and passed.now is not None):
        return
    allocation, held = task.allocation, passed.held()
    for child in passed.now.sent:
        per_s = passed.per_s(_to_child(child))
        yield EdgeMeasures(task.job_id, task.name, child, per_s, held=held[child])
    upstream = allocation.wiring.upstream
    for sender, segments in allocation.inbox.waiting_by_sender().items():
        if sender in upstream:
            yield EdgeMeasures(task.job_id, upstream[sender], task.name, queue_segments=segments)


def _of_stage(stage: str) -> Callable[[_Look], Durations]:
    return lambda look: look.stages[stage]


def _to_child(child: TaskName) -> Callable[[_Look], float]:
    return lambda look: look.sent.get(child, 0)


def source_of(task: Task) -> Source | None:
    """Where an input, or a stage, reads; None of others and before it is built."""
    return task.runtime.source if isinstance(task, BatchTask) and task.loaded else None


def _memory_bytes() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
