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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import msgspec
from msgspec.structs import replace

from onyx.base.seams import Clock
from onyx.errors import OnyxError, Unavailable, describe
from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.model.locations import without_secrets
from onyx.peer.router.answered import AnsweredRequests
from onyx.peer.work.task_threads import TaskRunner, stack_of
from onyx.plugins.protocol import Behind, Cursor
from onyx.replica import canonical
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
    PeerMeasures,
    StateMeasures,
    TaskMeasures,
    WorkerMeasures,
    ZooKeeperMeasures,
    furthest,
    of_inputs,
)
from onyx.tables.shared import SharedTable, TableId, TableMeasures
from onyx.task.measured import MeasuredPart, OpenPartition, PartSource
from onyx.task.source.source import Source
from onyx.task.task import BatchTask, Task
from onyx.telemetry.catalog import (
    JOIN_BYTES,
    JOIN_ROWS,
    SOURCE_LAG,
    SOURCE_LAG_BYTES,
    SOURCE_OLDEST,
    STATE_BYTES,
    STATE_GROUPS,
    STATE_SPILLED,
    STATE_TIMERS,
    TABLE_AGE,
    TABLE_BYTES,
    TABLE_ROWS,
    Metric,
)
from onyx.telemetry.container import ContainerMemory
from onyx.telemetry.interface import GroupMetrics

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
    retried: int
    sent: Mapping[TaskName, int]
    waits_for: tuple[TaskName, ...]


class Measuring:
    """The measures of one incarnation. `look` on the group's thread, `document` on any."""

    def __init__(
        self,
        group: GroupId,
        clock: Clock,
        aside: Aside,
        requests: AnsweredRequests,
        zookeeper: Callable[[], ZooKeeperMeasures] = ZooKeeperMeasures,
    ) -> None:
        """
        Args:
            aside: runs what may block, on a thread of its own.
            requests: those that this process has answered.
            zookeeper: what has passed between this process and ZooKeeper.
        """
        self._zookeeper = zookeeper
        self._requests = requests
        self._cgroup = ContainerMemory()
        self._group = group
        self._clock = clock
        self._lags = Lags(clock, aside)
        self._lock = threading.Lock()
        self._looks: dict[Key, deque[_Look]] = {}
        self._runners: tuple[TaskRunner, ...] = ()
        self._replica = Replica()
        self._next_s = 0.0

    def look(self, runners: Collection[TaskRunner], replica: Replica) -> bool:
        """Take down what the tasks have counted, if it is time; whether it was."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + LOOK_S
        with self._lock:
            self._runners, self._replica = tuple(runners), replica
            for runner in self._runners:
                self._take_down(runner.task, now_s)
            there = {_key(each.task, part) for each in self._runners for part in each.task.parts}
            for key in self._looks.keys() - there:
                del self._looks[key]
        self._lags.look(self._runners, now_s)
        self._requests.look(now_s, replica.jobs)
        return True

    def export(self, metrics: GroupMetrics) -> None:
        """Set the series of inputs and states by the same measures, and those of tables."""
        series: dict[Metric, dict[tuple[str, ...], float]] = {each: {} for each in _EXPORTED}
        names = {each.task.job_id: each.task.job.name for each in self._runners if each.task.job}
        measured = self._tried(None).tasks if names else ()
        of_tasks = chain.from_iterable(map(_series_of, measured))
        of_tables = _of_tables(self._runners, self._clock.monotonic_s())
        for labels, metric, value in chain(of_tasks, of_tables):
            if (name := names.get(JobId(labels[0]))) is not None:
                series[metric][name, *labels] = value
        for metric, its in series.items():
            metrics.replace(metric, its)

    def close(self, metrics: GroupMetrics) -> None:
        """The incarnation has ended: it has nothing."""
        for metric in _EXPORTED:
            metrics.replace(metric, {})
        self._requests.close(self._clock.monotonic_s())

    def document(self, job: JobId | None = None) -> WorkerMeasures:
        """What is known now of a job, or of all. Raises Unavailable."""
        counted, replica = self._tried(job), self._replica
        now_s = self._clock.monotonic_s()
        peers = [_at_work(each, now_s) for each in self._of(job)]
        return replace(
            counted,
            zookeeper=replace(counted.zookeeper, log_position=replica.version),
            memory_bytes=_memory_bytes(),
            peers=tuple(sorted(peers, key=lambda each: (each.job, each.task, each.peer))),
            container_bytes=self._cgroup.held_bytes(),
            container_bytes_max=self._cgroup.limit_bytes(),
            digest=canonical.digest(replica),
        )

    def inputs(self) -> WorkerMeasures:
        """How inputs get on, in numbers (`of_inputs`), which costs less. Raises Unavailable."""
        return of_inputs(self._tried(None))

    def _of(self, job: JobId | None) -> list[TaskRunner]:
        return [each for each in self._runners if job is None or each.task.job_id == job]

    def _tried(self, job: JobId | None) -> WorkerMeasures:
        """What the tasks have counted, of which metrics are set too."""
        for _ in range(TRIES):
            with contextlib.suppress(RuntimeError, LookupError):  # a task changed it meanwhile
                return self._counted(job)
        raise Unavailable(f"the tasks of group {self._group} change faster than they are measured")

    def _take_down(self, task: Task, now_s: float) -> None:
        for part in task.parts:
            if (found := _look(task, part, now_s)) is not None:
                looks = self._looks.setdefault(_key(task, part), deque())
                looks.append(found)
                while looks[0].at_s < now_s - WINDOW_S:
                    looks.popleft()

    def _counted(self, job: JobId | None) -> WorkerMeasures:
        now_s = self._clock.monotonic_s()
        with self._lock:
            runners = self._of(job)
            looks = {key: tuple(its) for key, its in self._looks.items()}
        tasks: list[TaskMeasures] = []
        edges: list[EdgeMeasures] = []
        for runner in runners:
            task = runner.task
            for part in task.parts:
                key = _key(task, part)
                passed = Passed(looks.get(key, ()), _look(task, part, now_s), part.of_query)
                found = _measured(task, part, passed, now_s)
                if found.input is not None:
                    lag = self._lags.of(key)
                    read = _with_lag(found.input, lag, self._clock.wall_ms())
                    found = replace(found, input=_with_end(read, part.source, lag))
                tasks.append(found)
                edges += _edges(task, part, passed)
        for (job_id, name), its in self._requests.measures(job):
            tasks.append(TaskMeasures(job_id, name, requests=its))
        one = WorkerMeasures(
            self._group,
            self._clock.wall_ms(),
            tuple(tasks),
            tuple(edges),
            self._zookeeper(),
        )
        whole = Measures((one,))
        return replace(one, tasks=whole.tasks, edges=whole.edges)


# --- one task on one peer -----------------------------------------------------------------------


class Passed:
    """What has passed at a peer between looks."""

    def __init__(self, looks: tuple[_Look, ...], now: _Look | None, rarely: bool) -> None:
        """`rarely`: rates are of the whole window."""
        self.now = now
        self._looks = looks
        self._rate_s = WINDOW_S if rarely else RATE_S

    def per_s(self, value: Callable[[_Look], float]) -> float:
        """How fast a count has grown of late; one that has begun again counts from there."""
        before = self._before(self._rate_s)
        if self.now is None or before is None:
            return 0.0
        grown = value(self.now) - value(before)
        passed_s = max(self.now.at_s - before.at_s, LOOK_S)
        return (value(self.now) if grown < 0 else grown) / passed_s

    def grown(self, value: Callable[[_Look], int]) -> int:
        """By how much a count has grown in the window."""
        before = self._before(WINDOW_S)
        if self.now is None:
            return 0
        return max(0, value(self.now) - (0 if before is None else value(before)))

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


def _at_work(runner: TaskRunner, now_s: float) -> PeerMeasures:
    """What a peer does now."""
    task = runner.task
    since_s = task.status.step_since_s
    return PeerMeasures(
        task.job_id,
        task.name,
        task.peer,
        task.phase.value,
        None if since_s is None else max(0.0, now_s - since_s),
        task.status.batches,
        () if since_s is None else stack_of(runner),
    )


def _key(task: Task, part: MeasuredPart) -> Key:
    return task.job_id, part.name, task.peer


def _look(task: Task, part: MeasuredPart, now_s: float) -> _Look | None:
    """What a task has counted; None before it counts."""
    tally, source = part.tally, part.source
    if tally is None:
        return None
    sent, waits_for = part.sent, tuple[TaskName, ...]()
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
        0 if source is None else source.retried,
        sent,
        waits_for,
    )


def _measured(task: Task, part: MeasuredPart, passed: Passed, now_s: float) -> TaskMeasures:
    source, queue, queue_max = part.source, 0, 0
    watermark_ms, state = part.watermark_ms, part.state
    if isinstance(task, BatchTask) and task.wired:
        event_time, keeper = task.allocation.event_time, task.allocation.keeper
        watermark_ms = None if event_time is None else event_time.sent_ms
        state = None if keeper is None else keeper.measures()
    if isinstance(task, BatchTask) and task.wired and (source is None or task.runtime.sink):
        queue = task.allocation.inbox.waiting_segments()
        queue_max = task.runtime.services.settings.task.inbox_segments_max
    busy = min(1.0, passed.per_s(lambda look: look.busy_s))
    stages = {} if passed.now is None else passed.now.stages
    return TaskMeasures(
        job=task.job_id,
        task=part.name,
        peers=0 if part.of_query else 1,
        phase={task.phase.value: 1},
        counted=part.counted,
        in_per_s=passed.per_s(lambda look: look.read),
        out_per_s=passed.per_s(lambda look: look.written),
        busy=busy,
        busiest=busy,
        backpressured=min(1.0, passed.per_s(lambda look: look.held_s)),
        stages={stage: passed.durations(_of_stage(stage)) for stage in stages},
        queue_segments=queue,
        queue_max=queue_max,
        watermark_ms=watermark_ms,
        input=None if source is None else _of_source(source, passed, now_s),
        state=state,
    )


def _of_source(source: PartSource, passed: Passed, now_s: float) -> InputMeasures:
    partitions = source.opened()
    newest = [each.newest_ms for each in partitions if each.newest_ms is not None]
    return InputMeasures(
        partitions=len(partitions),
        in_flight=source.in_flight,
        completed_per_s=passed.per_s(lambda look: look.completed),
        oldest_open_s=source.oldest_open_s(now_s),
        complete=passed.durations(lambda look: look.complete),
        event_time_ms=min(newest, default=None),
        slowest=furthest(
            PartitionMeasures(
                each.name, each.position, each.in_flight, event_time_ms=each.newest_ms
            )
            for each in partitions
        ),
        unknown=source.unknown,
        retried=passed.grown(lambda look: look.retried),
    )


# --- how far inputs are behind ------------------------------------------------------------------

LAG_S = 5.0
"""Between two questions to a source."""
Aside = Callable[[Callable[[], None]], object]
Ask = Callable[[Mapping[str, Cursor]], Mapping[str, Behind]]
SILENT_SOURCE = "the source does not say it"


class Lag(msgspec.Struct, frozen=True):
    """What one peer of an input had before it at a moment."""

    at_s: float
    behind: Mapping[str, Behind] | None
    """By partition, from where everything was processed; None: nobody knows, for a reason."""
    ends: Mapping[str, int]
    """Positions behind the last segment that was there, of the partitions that say it."""
    unknown: str = ""
    arriving_per_s: float | None = None
    total: int | None = None
    """Segments that are processed or left, of a source that has an end."""


class Lags:
    """Asks inputs how far they are behind, each on a thread of its own, one question at a time:
    the source may not answer for long."""

    def __init__(self, clock: Clock, aside: Aside) -> None:
        self._clock = clock
        self._aside = aside
        self._known: dict[Key, Lag] = {}
        self._asking: set[Key] = set()
        self._next_s: dict[Key, float] = {}

    def look(self, runners: Collection[TaskRunner], now_s: float) -> None:
        """Ask those whose time has come; forget those that are gone."""
        there = set()
        for runner in runners:
            for part in runner.task.parts:
                key, source = _key(runner.task, part), part.source
                there.add(key)
                due = key not in self._asking and now_s >= self._next_s.get(key, 0.0)
                if due and source is not None and source.behind is not None:
                    self._next_s[key] = now_s + LAG_S
                    self._asking.add(key)
                    self._aside(partial(self._ask, key, source, source.behind))
        for known in (self._known, self._next_s):  # an answer may come when its task has gone
            for gone in known.keys() - there:
                known.pop(gone, None)

    def of(self, key: Key) -> Lag | None:
        """What is known of a task; None: its source says nothing, or has not yet."""
        return self._known.get(key)

    def _ask(self, key: Key, source: PartSource, behind: Ask) -> None:
        try:
            cursors = {each.name: each.cursor for each in source.opened()}
            found = behind(cursors) if cursors else {}
            lag = self._lag(key, source, source.opened(), cursors, found)
        except OnyxError as error:
            lag = Lag(self._clock.monotonic_s(), None, {}, without_secrets(str(error)))
        except Exception as error:  # of a user's plugin, or a partition has just gone
            lag = Lag(self._clock.monotonic_s(), None, {}, f"behind(): {describe(error)}")
        self._known[key] = lag
        self._asking.discard(key)

    def _lag(
        self,
        key: Key,
        source: PartSource,
        opened: Sequence[OpenPartition],
        cursors: Mapping[str, Cursor],
        found: Mapping[str, Behind],
    ) -> Lag:
        now_s, before = self._clock.monotonic_s(), self._known.get(key)
        ends, behind = {}, {}
        positions = {each.name: each.position for each in opened}
        for name, each in found.items():
            if each.segments is not None:
                ends[name] = cursors[name].position + each.segments
                left = max(0, ends[name] - positions.get(name, ends[name]))
                each = replace(each, segments=left)
            behind[name] = each
        for name in cursors.keys() - found.keys():
            behind[name] = Behind()
        rest = _left(opened, cursors, behind)
        total = None if rest is None else source.done + rest
        return Lag(now_s, behind, ends, "", _arriving(before, now_s, ends), total)


def _left(
    opened: Sequence[OpenPartition], cursors: Mapping[str, Cursor], behind: Mapping[str, Behind]
) -> int | None:
    """Segments that are left; where bytes are known, by the segments that those before the cursors
    have held. None: not known, or nothing is processed yet."""
    known = {name: its.segments for name, its in behind.items() if its.segments is not None}
    known |= {each.name: each.in_flight for each in opened if each.ended}
    of_bytes = {name: its for name, its in behind.items() if name not in known}
    if not of_bytes:
        return sum(known.values())
    size = _whole(its.bytes for its in of_bytes.values())
    bytes_done = _whole(its.bytes_done for its in of_bytes.values())
    if size is None or not bytes_done:
        return None
    segments_done = sum(cursors[name].position for name in of_bytes)
    return sum(known.values()) + round(size * segments_done / bytes_done)


def _arriving(before: Lag | None, now_s: float, ends: Mapping[str, int]) -> float | None:
    """How fast the ends of partitions have moved between two answers."""
    if before is None or not ends or before.ends.keys() != ends.keys():
        return None
    grown = sum(ends.values()) - sum(before.ends.values())
    return max(0.0, grown / max(now_s - before.at_s, 1.0))


def _with_lag(found: InputMeasures, lag: Lag | None, wall_ms: int) -> InputMeasures:
    """The measures of an input with what its source has said."""
    if found.unknown:
        return found
    if not found.partitions:
        return replace(found, segments_behind=0, bytes_behind=0, seconds_behind=0.0)
    if lag is None or lag.behind is None:
        return replace(found, unknown="" if lag is None else lag.unknown)
    behind = tuple(lag.behind.values())
    segments = _whole(each.segments for each in behind)
    size = _whole(each.bytes for each in behind)
    waiting = [each.waiting for each in behind if each.waiting is not None]
    seconds = None
    if 0 in (segments, size):
        seconds = 0.0
    elif found.event_time_ms is not None:
        seconds = max(0.0, (wall_ms - found.event_time_ms) / 1000)
    return replace(
        found,
        segments_behind=segments,
        bytes_behind=size,
        seconds_behind=seconds,
        arriving_per_s=lag.arriving_per_s,
        waiting=sum(waiting) if waiting else None,
        slowest=furthest(_shown(each, lag.behind) for each in found.slowest),
        unknown=SILENT_SOURCE if segments is None and size is None else "",
    )


def _with_end(found: InputMeasures, source: PartSource | None, lag: Lag | None) -> InputMeasures:
    """The measures with how much is left, if the input has an end and somebody knows it."""
    if source is None or (source.tasks is None and (found.unknown or not source.has_end)):
        return found
    done, total = source.done, source.tasks or (None if lag is None else lag.total)
    if source.tasks is None and not found.partitions:
        return replace(found, done=done, left=0)
    return found if total is None else replace(found, done=done, left=max(0, total - done))


def _shown(partition: PartitionMeasures, behind: Mapping[str, Behind]) -> PartitionMeasures:
    its = behind.get(partition.name, Behind())
    return replace(partition, segments_behind=its.segments, bytes_behind=its.bytes)


def _whole(counts: Iterable[int | None]) -> int | None:
    """The sum, if all of it is known."""
    found = list(counts)
    return None if not found or None in found else sum(filter(None, found))


# --- series -------------------------------------------------------------------------------------

_OF_INPUTS: Mapping[Metric, Callable[[InputMeasures], float | None]] = {
    SOURCE_LAG: lambda found: found.segments_behind,
    SOURCE_LAG_BYTES: lambda found: found.bytes_behind,
    SOURCE_OLDEST: lambda found: found.oldest_open_s,
}
_OF_STATES: Mapping[Metric, Callable[[StateMeasures], float | None]] = {
    STATE_BYTES: lambda found: found.bytes,
    STATE_GROUPS: lambda found: found.groups,
    STATE_TIMERS: lambda found: found.timers,
    STATE_SPILLED: lambda found: found.spilled,
}
_OF_SIDES: Mapping[Metric, Callable[[StateMeasures], Mapping[str, int]]] = {
    JOIN_ROWS: lambda found: found.sides,
    JOIN_BYTES: lambda found: found.sides_bytes,
}
_EXPORTED = (*_OF_INPUTS, *_OF_STATES, *_OF_SIDES, TABLE_ROWS, TABLE_BYTES, TABLE_AGE)
Series = tuple[tuple[str, ...], Metric, float]
"""Labels but the name of the job, and a value."""


def _series_of(task: TaskMeasures) -> Iterator[Series]:
    """The series of a task."""
    labels = task.job, task.task
    for of_input, value in _OF_INPUTS.items():
        if task.input is not None and (known := value(task.input)) is not None:
            yield labels, of_input, known
    if task.state is None:
        return
    for of_state, amount in _OF_STATES.items():
        if (found := amount(task.state)) is not None:
            yield labels, of_state, found
    for of_side, sides in _OF_SIDES.items():
        for side, size in sides(task.state).items():
            yield (*labels, side), of_side, size


def _of_tables(runners: Iterable[TaskRunner], now_s: float) -> Iterator[Series]:
    """The series of the tables of a process, the parts of one together."""
    shared: dict[TableId, SharedTable] = {}
    for task in (each.task for each in runners):
        tables = task.runtime.tables if isinstance(task, BatchTask) and task.loaded else None
        if tables is not None and not tables.left:
            ids = tuple(tables.ids.items())
            shared |= {which: tables.by_name[name] for name, which in ids}
    parts: dict[tuple[str, str], list[TableMeasures]] = {}
    for which, table in shared.items():
        if (part := table.measures(now_s)) is not None:
            parts.setdefault((which.job, which.name), []).append(part)
    for labels, its in parts.items():
        yield labels, TABLE_ROWS, sum(each.rows for each in its)
        yield labels, TABLE_BYTES, sum(each.bytes for each in its)
        yield labels, TABLE_AGE, max(each.age_s for each in its)


# --- edges --------------------------------------------------------------------------------------


def _edges(task: Task, part: MeasuredPart, passed: Passed) -> Iterator[EdgeMeasures]:
    """What a part sends, and what waits for it, each by the task at the other end."""
    if passed.now is None or not part.counted:
        return
    held = passed.held()
    for child in passed.now.sent:
        per_s = passed.per_s(_to_child(child))
        yield EdgeMeasures(task.job_id, part.name, child, per_s, held=held[child])
    if not (isinstance(task, BatchTask) and task.wired):
        return
    allocation = task.allocation
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
