"""What a worker measures of the tasks that run in it: one document, from which `onyx jobs`, the
status of an OnyxJob, the gateway and metrics read.

A worker answers with its own part (`WorkerMeasures`), and whoever asks joins the parts: nothing
here is in the log or beside it, because it changes all the time. Sums over peers are kept as sums,
so that parts of a task in several workers add up; what is a share of the time of one peer has a
name that says so. A field may be added with a default, and none is changed: workers and who asks
them may be of different versions.

Rates are those of the last `RATE_S` seconds, durations those of the last `WINDOW_S`: what a process
has counted since it began says nothing of now. It is what the metrics are for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import reduce
from itertools import accumulate, chain, groupby
from operator import add
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from onyx.base.structs import prepared
from onyx.reports.stalls import StackFrame

RATE_S = 10.0
"""Rates are means over so long."""
WINDOW_S = 60.0
"""Durations are of what has ended within so long."""
OLD_S = 60.0
"""A tree that is open for so long is worth a word."""
SILENT_SHOWN_MAX = 3
PARTITIONS_SHOWN_MAX = 64
"""Partitions of an input in a document, those that are furthest behind first."""


class Durations(msgspec.Struct, frozen=True):
    """How long something took, as a histogram."""

    bounds_s: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    """How many took at most each bound and more than the one before; the last: more than all."""
    total_s: float = 0.0

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts)

    @property
    def mean_s(self) -> float | None:
        """The mean; None without any."""
        count = self.count
        return self.total_s / count if count else None

    def quantile_s(self, part: float) -> float | None:
        """The bound that this part of them is below, to the width of a bucket; None without any.
        Beyond the last bound it is that bound."""
        count = self.count
        if not count:
            return None
        for bound, below in zip(self.bounds_s, accumulate(self.counts), strict=False):
            if below >= part * count:
                return bound
        return self.bounds_s[-1]

    def __add__(self, other: Durations) -> Durations:
        return self._with(other, 1)

    def since(self, before: Durations) -> Durations:
        """What has come since an earlier look at the same ones."""
        return self._with(before, -1)

    def _with(self, other: Durations, sign: int) -> Durations:
        if not (self.counts and other.bounds_s == self.bounds_s):
            return self if self.counts or sign < 0 else other
        counts = zip(self.counts, other.counts, strict=True)
        return Durations(
            self.bounds_s,
            tuple(mine + sign * its for mine, its in counts),
            self.total_s + sign * other.total_s,
        )


NO_DURATIONS = Durations()


class PartitionMeasures(msgspec.Struct, frozen=True):
    """How far one partition of an input is."""

    name: str
    position: int
    """Everything before it is processed."""
    in_flight: int = 0
    """Read, and not processed yet."""
    segments_behind: int | None = None
    """Segments that are there and not processed, those in flight included; None: not known."""
    bytes_behind: int | None = None
    event_time_ms: int | None = None
    """The newest event time that was read."""


class InputMeasures(msgspec.Struct, frozen=True):
    """How far an input is, over the partitions of the peers that are meant."""

    partitions: int = 0
    """How many there are that have not ended."""
    segments_behind: int | None = None
    """Segments that are there and not processed. None: the source does not say it, or `unknown`
    says why not now."""
    bytes_behind: int | None = None
    """Bytes that are there and not processed, of sources that are read by bytes."""
    seconds_behind: float | None = None
    """How old the oldest segment is that is there and not processed, where its time is known: by
    the source, or by the event time of what was read last. 0: nothing is behind."""
    arriving_per_s: float | None = None
    """Segments a second that come into the source: what is read, and by how much more is behind."""
    waiting: int | None = None
    """Requests or messages that this worker has got and has not read yet."""
    in_flight: int = 0
    """Segments that were read and whose trees are not complete."""
    completed_per_s: float = 0.0
    """Trees that become complete."""
    oldest_open_s: float | None = None
    """Since when the oldest tree that is not complete was read; None: all are complete."""
    complete: Durations = NO_DURATIONS
    """From the reading of a segment until its whole tree is processed."""
    event_time_ms: int | None = None
    """The newest event time that was read, of the partition that is furthest behind in it."""
    slowest: tuple[PartitionMeasures, ...] = ()
    """The partitions, those first that are furthest behind; at most `PARTITIONS_SHOWN_MAX`."""
    unknown: str = ""
    """Why it is not known now how far the input is behind."""
    retried: int = 0
    """Segments that were read again in the last `WINDOW_S`."""
    done: int | None = None
    """Segments that are processed, since the job began, where `left` is known; of a query over
    bounded inputs the tasks of Spark that are done."""
    left: int | None = None
    """Segments that are not processed, in flight or to be read, until the source ends: an estimate
    where its bytes are known. None: it has no end, or says neither."""

    def __add__(self, other: InputMeasures) -> InputMeasures:
        # Into what a peer without partitions reads nothing comes.
        arriving = _both if self.partitions and other.partitions else _any
        return InputMeasures(
            self.partitions + other.partitions,
            _both(self.segments_behind, other.segments_behind),
            _both(self.bytes_behind, other.bytes_behind),
            _oldest(self.seconds_behind, other.seconds_behind),
            arriving(self.arriving_per_s, other.arriving_per_s),
            _any(self.waiting, other.waiting),
            self.in_flight + other.in_flight,
            self.completed_per_s + other.completed_per_s,
            _most(self.oldest_open_s, other.oldest_open_s),
            self.complete + other.complete,
            _least(self.event_time_ms, other.event_time_ms),
            furthest((*self.slowest, *other.slowest)),
            self.unknown or other.unknown,
            self.retried + other.retried,
            _both(self.done, other.done),
            _both(self.left, other.left),
        )


class StateMeasures(msgspec.Struct, frozen=True):
    """The state that a task keeps, over the peers that are meant."""

    bytes: int = 0
    """The bytes of its state logs, which are as large as the state, or a few times that."""
    groups: int | None = None
    """Groups that have a state, in each extent of a window, or entries that a processor has saved.
    Sessions of a group may count as one. None: a join, or another engine has the state."""
    timers: int | None = None
    """Groups with a timer of a function, or timers of windows; None: there can be none."""
    next_timer_ms: int | None = None
    """None of them is due before, in ms since the epoch, by its clock: of what is due later than
    soon it is the beginning of the minute, or of the day."""
    sides: dict[str, int] = {}
    """Rows that a join of streams keeps of each of its two tasks, some of which may have passed."""
    sides_bytes: dict[str, int] = {}
    """The bytes of these rows."""
    spilled: int | None = None
    """States of groups, or rows of a join, that are only on the local disk; None: all stay in
    memory, or another engine has them."""

    def __add__(self, other: StateMeasures) -> StateMeasures:
        return StateMeasures(
            self.bytes + other.bytes,
            _any(self.groups, other.groups),
            _any(self.timers, other.timers),
            _least(self.next_timer_ms, other.next_timer_ms),
            _sums(self.sides, other.sides),
            _sums(self.sides_bytes, other.sides_bytes),
            _any(self.spilled, other.spilled),
        )


class RequestMeasures(msgspec.Struct, frozen=True):
    """How requests to an input were answered in the last `WINDOW_S`, by the workers that are asked:
    one that no peer of the job runs in may have answered others, which its metrics have."""

    answers: dict[str, int] = {}
    """How many, by the level asked for and the status: `ack processed`."""
    seconds: Durations = NO_DURATIONS
    """Time to the answer, of those that were taken."""

    def __add__(self, other: RequestMeasures) -> RequestMeasures:
        return RequestMeasures(_sums(self.answers, other.answers), self.seconds + other.seconds)

    def since(self, before: RequestMeasures) -> RequestMeasures:
        """What has come since an earlier look at the same input."""
        found = {name: many - before.answers.get(name, 0) for name, many in self.answers.items()}
        there = {name: many for name, many in found.items() if many}
        return RequestMeasures(there, self.seconds.since(before.seconds))


class TaskMeasures(msgspec.Struct, frozen=True):
    """How a task gets on, over the peers that are meant: those of a worker, or all."""

    job: str
    task: str
    peers: int = 0
    """Peers that work on it. 0: a task of a job on Spark, whose query has none; nothing is said
    then of the time for which it works or waits, and rates are of the last `WINDOW_S`."""
    phase: dict[str, int] = {}
    """What the peers do, with how many do it."""
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    busy: float = 0.0
    """Peers that were at work, as a mean: 0 to `peers`. The share of one peer is `busy / peers`."""
    busiest: float = 0.0
    """The share of its time for which the busiest peer was at work: 0 to 1."""
    backpressured: float = 0.0
    """Peers that could not go on because somebody downstream had no room, as a mean."""
    stages: dict[str, Durations] = {}
    """Time spent on a batch, by its stage: `read`, `apply`, `write`."""
    queue_segments: int = 0
    """Segments that wait in its inboxes."""
    queue_max: int = 0
    """So many may wait before senders are refused."""
    watermark_ms: int | None = None
    """Event time that all peers have reached."""
    input: InputMeasures | None = None
    """There for an input, and a stage in the middle."""
    state: StateMeasures | None = None
    """There for a task that keeps state."""
    requests: RequestMeasures | None = None
    """There for an input to which requests have come."""
    counted: bool = True
    """Whether rates are known. Not those of a query over bounded inputs, which counts when it
    ends."""

    def __add__(self, other: TaskMeasures) -> TaskMeasures:
        return replace(
            self,
            peers=self.peers + other.peers,
            phase=_sums(self.phase, other.phase),
            in_per_s=self.in_per_s + other.in_per_s,
            out_per_s=self.out_per_s + other.out_per_s,
            busy=self.busy + other.busy,
            busiest=max(self.busiest, other.busiest),
            backpressured=self.backpressured + other.backpressured,
            stages=_durations(self.stages, other.stages),
            queue_segments=self.queue_segments + other.queue_segments,
            queue_max=self.queue_max + other.queue_max,
            watermark_ms=_least(self.watermark_ms, other.watermark_ms),
            input=_joined(self.input, other.input),
            state=_joined(self.state, other.state),
            requests=_joined(self.requests, other.requests),
            counted=self.counted and other.counted,
        )


class EdgeMeasures(msgspec.Struct, frozen=True):
    """What passes from one task to another."""

    job: str
    source: str
    target: str
    per_s: float = 0.0
    """Segments that are sent."""
    queue_segments: int = 0
    """Segments that have come and wait for the target."""
    held: float = 0.0
    """Peers of the source that waited for room there, as a mean of some looks."""

    def __add__(self, other: EdgeMeasures) -> EdgeMeasures:
        return replace(
            self,
            per_s=self.per_s + other.per_s,
            queue_segments=self.queue_segments + other.queue_segments,
            held=self.held + other.held,
        )


class PeerMeasures(msgspec.Struct, frozen=True):
    """What a peer of a task does at the moment at which its worker is asked."""

    job: str
    task: str
    peer: str
    phase: str
    step_s: float | None = None
    """For how long it has been in its present step; None: between two."""
    batches: int = 0
    """How often it has come to the end of its loop."""
    stack: tuple[StackFrame, ...] = ()
    """Where the user's code is, innermost last; empty while none of it runs."""


class ZooKeeperMeasures(msgspec.Struct, frozen=True):
    """ZooKeeper as one worker sees it, since it has joined."""

    requests: Durations = NO_DURATIONS
    """From sending a request to its answer."""
    sent_bytes: int = 0
    received_bytes: int = 0
    watches: int = 0
    """Watches that are set."""
    log_position: int = 0
    """The last entry of the log that it has applied."""


@prepared
class WorkerMeasures(msgspec.Struct, frozen=True):
    """What one worker answers with."""

    group: str
    """Id of the group."""
    at_ms: int
    """When it has looked, by its clock."""
    tasks: tuple[TaskMeasures, ...] = ()
    """The tasks of which peers run in it."""
    edges: tuple[EdgeMeasures, ...] = ()
    zookeeper: ZooKeeperMeasures = ZooKeeperMeasures()
    memory_bytes: int | None = None
    """Memory of the process, as the kernel counts it."""
    peers: tuple[PeerMeasures, ...] = ()
    """The peers that work in it, in the order of jobs and tasks."""
    container_bytes: int | None = None
    """Memory of all processes in its cgroup, with the files that the kernel keeps for them; None:
    it has none of its own."""
    container_bytes_max: int | None = None
    """So much may that be; None: there is no limit, or nobody knows."""
    digest: str = ""
    """Hash of its replica after `zookeeper.log_position`, which all workers have in common."""


@prepared
class WorkerDiagnostics(msgspec.Struct, frozen=True):
    """What one worker says besides, for a bundle."""

    lines: tuple[str, ...] = ()
    """Its last log lines as JSON, those about the job and those about none."""
    metrics: str = ""
    """All that it counts, as Prometheus has it; the beginning."""


@prepared
class Measures(msgspec.Struct, frozen=True):
    """The answers of the workers of a job, or of a cluster."""

    workers: tuple[WorkerMeasures, ...] = ()
    silent: dict[str, str] = {}
    """Groups that did not answer in time, each with the reason: what is said of the others is
    without them."""

    @property
    def tasks(self) -> tuple[TaskMeasures, ...]:
        """Each task of each job, over all workers that have answered."""
        return tuple(_by_key(chain.from_iterable(each.tasks for each in self.workers), _of_task))

    @property
    def peers(self) -> tuple[PeerMeasures, ...]:
        """Each peer, of all workers that have answered."""
        return tuple(chain.from_iterable(each.peers for each in self.workers))

    @property
    def edges(self) -> tuple[EdgeMeasures, ...]:
        """Each edge, over all workers that have answered."""
        return tuple(_by_key(chain.from_iterable(each.edges for each in self.workers), _of_edge))


class JobMeasures(msgspec.Struct, frozen=True):
    """A job in a line: over its inputs, of all workers that have answered."""

    per_s: float | None = None
    """Segments a second that inputs read; None: of no input anything is known."""
    segments_behind: int | None = None
    bytes_behind: int | None = None
    seconds_behind: float | None = None
    oldest_open_s: float | None = None
    complete: Durations = NO_DURATIONS
    backpressured: tuple[str, ...] = ()
    """Tasks in front of which others wait for room, the one that holds back most first."""
    silent: dict[str, str] = {}
    """Groups that work on it and did not answer, each with the reason."""
    unknown: str = ""
    """Why it is not known how far it is behind."""
    retried: int = 0
    """Segments that inputs have read again in the last `WINDOW_S`."""
    done: float | None = None
    """The part of its inputs that is processed, 0 to 1; None: one has no end, or nobody knows."""
    left_s: float | None = None
    """Seconds until its inputs are read, if they go on as they do."""


def of_jobs(
    tasks: Iterable[TaskMeasures],
    edges: Iterable[EdgeMeasures] = (),
) -> dict[str, JobMeasures]:
    """What is measured of each job that has an input here, by its id.

    Args:
        tasks, edges: each once, over all workers that have answered.
    """
    inputs: dict[str, list[tuple[float | None, InputMeasures]]] = {}
    for task in tasks:
        if task.input is not None:
            its = task.in_per_s if task.counted else None, task.input
            inputs.setdefault(task.job, []).append(its)
    held: dict[str, list[EdgeMeasures]] = {}
    for edge in sorted(edges, key=lambda each: -each.held):
        if edge.held > 0:
            held.setdefault(edge.job, []).append(edge)
    return {job: _of_job(its, held.get(job, ())) for job, its in inputs.items()}


def _of_job(
    inputs: Sequence[tuple[float | None, InputMeasures]],
    held: Iterable[EdgeMeasures],
) -> JobMeasures:
    total = reduce(add, (each for _, each in inputs))
    return JobMeasures(
        reduce(_any, (per_s for per_s, _ in inputs)),
        total.segments_behind,
        total.bytes_behind,
        total.seconds_behind,
        total.oldest_open_s,
        total.complete,
        tuple(dict.fromkeys(each.target for each in held)),
        unknown=total.unknown,
        retried=total.retried,
        done=_part(total.done, total.left),
        left_s=_seconds_left([its for _, its in inputs]),
    )


def _part(done: int | None, left: int | None) -> float | None:
    if done is None or left is None:
        return None
    return done / (done + left) if done + left else 1.0


def _seconds_left(inputs: Iterable[InputMeasures]) -> float | None:
    """That of the input that needs longest; all are read at the same time."""
    found = 0.0
    for each in inputs:
        if each.left is None or (each.left and not each.completed_per_s):
            return None
        found = max(found, each.left / each.completed_per_s if each.left else 0.0)
    return found


def of_inputs(worker: WorkerMeasures) -> WorkerMeasures:
    """What a document says of how inputs get on, in the numbers that metrics have too:
    nothing of their partitions, and no reason in words."""
    tasks = (
        TaskMeasures(
            each.job,
            each.task,
            each.peers,
            in_per_s=each.in_per_s,
            counted=each.counted,
            input=replace(each.input, slowest=(), event_time_ms=None, unknown=""),
        )
        for each in worker.tasks
        if each.input is not None
    )
    return WorkerMeasures(worker.group, worker.at_ms, tuple(tasks))


def in_words(job: JobMeasures) -> str:
    """A job in a line, for people."""
    behind = [
        f"{count:,} {what}"
        for count, what in ((job.segments_behind, "segments"), (job.bytes_behind, "bytes"))
        if count is not None
    ]
    lag = f"{' and '.join(behind)} behind" if behind else ""
    if lag and job.seconds_behind:
        lag += f" ({job.seconds_behind:,.1f} s)"
    if not lag and job.unknown:
        lag = f"how far behind is not known: {job.unknown}"
    half_s, most_s = job.complete.quantile_s(0.5), job.complete.quantile_s(0.99)
    complete = "" if half_s is None else f"complete within {half_s:g} s (half), {most_s:g} s (99 %)"
    oldest = ""
    if job.oldest_open_s is not None and job.oldest_open_s >= OLD_S:
        oldest = f"the oldest was read {job.oldest_open_s:,.0f} s ago"
    silent = [f"group {group} did not answer: {why}" for group, why in job.silent.items()]
    rate = "" if job.per_s is None else f"{job.per_s:,.0f} segments a second"
    again = f"{job.retried:,} read again within a minute" if job.retried else ""
    words = (done_in_words(job), rate, lag, complete, oldest, again, *silent[:SILENT_SHOWN_MAX])
    return ", ".join(filter(None, words))


def done_in_words(job: JobMeasures) -> str:
    """How much is done and when the rest will be, for people; empty: nobody knows."""
    if job.done is None:
        return ""
    if job.done == 1.0:
        return "its inputs are done"
    left_s = None if job.left_s is None else round(job.left_s)
    when = "" if left_s is None else f", about {timedelta(seconds=left_s)} left"
    return f"{math.floor(100 * job.done)} % done{when}"


def requests_in_words(its: RequestMeasures) -> str:
    """How requests were answered, for people; empty: none came."""
    if not its.answers:
        return ""
    answers = [f"{many:,} {name}" for name, many in sorted(its.answers.items())]
    half_s, most_s = its.seconds.quantile_s(0.5), its.seconds.quantile_s(0.99)
    within = "" if half_s is None else f"; taken within {half_s:g} s (half), {most_s:g} s (99 %)"
    return f"requests of the last minute: {', '.join(answers)}{within}"


def furthest(partitions: Iterable[PartitionMeasures]) -> tuple[PartitionMeasures, ...]:
    """The partitions that are furthest behind, first."""
    ordered = sorted(partitions, key=lambda each: (-(each.segments_behind or 0), each.name))
    return tuple(ordered[:PARTITIONS_SHOWN_MAX])


# --- how parts add up ---------------------------------------------------------------------------

N = TypeVar("N", int, float)
M = TypeVar("M", InputMeasures, StateMeasures, RequestMeasures)
E = TypeVar("E", TaskMeasures, EdgeMeasures)


def _of_task(measured: TaskMeasures) -> tuple[str, ...]:
    return measured.job, measured.task


def _of_edge(measured: EdgeMeasures) -> tuple[str, ...]:
    return measured.job, measured.source, measured.target


def _by_key(parts: Iterable[E], key: Callable[[E], tuple[str, ...]]) -> Iterator[E]:
    """The parts of each key added up, in the order of keys."""
    for _, its in groupby(sorted(parts, key=key), key):
        yield reduce(add, its)


def _joined(mine: M | None, its: M | None) -> M | None:
    if mine is None or its is None:
        return mine if its is None else its
    return mine + its


def _both(mine: N | None, its: N | None) -> N | None:
    """The sum, if all of it is known."""
    return None if mine is None or its is None else mine + its


def _any(mine: N | None, its: N | None) -> N | None:
    """The sum of what is known."""
    return None if mine is None and its is None else (mine or 0) + (its or 0)


def _most(mine: N | None, its: N | None) -> N | None:
    known = [each for each in (mine, its) if each is not None]
    return max(known, default=None)


def _oldest(mine: float | None, its: float | None) -> float | None:
    """The greater age; not known where one has nothing behind and the other does not know it."""
    found = _most(mine, its)
    return None if not found and None in (mine, its) else found


def _least(mine: N | None, its: N | None) -> N | None:
    known = [each for each in (mine, its) if each is not None]
    return min(known, default=None)


def _sums(mine: dict[str, int], its: dict[str, int]) -> dict[str, int]:
    return {name: mine.get(name, 0) + its.get(name, 0) for name in sorted({*mine, *its})}


def _durations(mine: dict[str, Durations], its: dict[str, Durations]) -> dict[str, Durations]:
    names = sorted({*mine, *its})
    return {name: mine.get(name, NO_DURATIONS) + its.get(name, NO_DURATIONS) for name in names}
