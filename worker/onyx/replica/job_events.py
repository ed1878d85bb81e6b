"""What happens to jobs, in words: the table of events, and an event as a value.

Each kind is a row: its name, how grave it is, a sentence with places for values, and what else it
has. An event is a kind with these values. So there is one place for the words, whoever shows it:
the log of a worker (`telemetry/logs`), `onyx events`, a page of the console. What an entry of
the log means for jobs is `replica/story`; what only a worker sees, it reports itself.

Values come from elsewhere: from manifests, exceptions, servers. They are cut, and characters that
end a line or move a cursor are written as escapes, before anybody sees them.

Rejected: a class for each kind. Nothing is done with an event but to show it, and a table can be
compared with a page of the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from onyx.ids import NO_POSITION, JobId, Position
from onyx.model.locations import without_secrets
from onyx.replica.authors import escaped

Level = Literal["info", "warning", "error"]
EventValue: TypeAlias = str | int | float | bool
VALUE_CHARACTERS_MAX = 600
NAME_CHARACTERS_MAX = 48
NOTHING: Mapping[str, EventValue] = MappingProxyType({})
NAMED_MAX = 8
"""Tasks, peers and partitions that are named in one event; of others there is the number."""


class EventKind(msgspec.Struct, frozen=True):
    """A row of the table."""

    name: str
    text: str
    """The sentence, with `{values}`; the job and who did it stand before it."""
    meaning: str
    """When it happens, for the table in the documentation."""
    level: Level = "info"
    also: tuple[str, ...] = ()
    """Values that are not in the sentence."""
    detail: bool = False
    """One of many alike: only the worker that it is about logs it, and `onyx events` shows it with
    `--all`."""

    @property
    def fields(self) -> frozenset[str]:
        """The names of its values."""
        places = (name for _, name, _, _ in Formatter().parse(self.text) if name)
        return frozenset((*places, *self.also))


class JobEvent(msgspec.Struct, frozen=True):
    """Something that has happened to a job, or to a worker.

    Values are shown by `text` and `shown`, which make them safe, and not as they are.
    """

    kind: EventKind
    values: Mapping[str, EventValue] = {}
    job: JobId = JobId("")
    """Empty for what happens to a worker."""
    by: str = ""
    """Who did it; empty for what only this process sees."""
    at_ms: int = 0
    """When, by the clock of who wrote the entry; 0: that is not known."""
    position: Position = NO_POSITION
    """The entry of the log that made it so."""
    about: Mapping[str, EventValue] = NOTHING
    """Name and metadata of the job."""

    def __post_init__(self) -> None:
        assert self.values.keys() == self.kind.fields, f"the values of {self.kind.name}"

    @property
    def text(self) -> str:
        """The sentence."""
        return self.kind.text.format_map(self.shown)

    @property
    def fields(self) -> dict[str, EventValue]:
        """All of it but the sentence, for programs."""
        said = {"what": self.kind.name, "job": self.job, "by": self.by}
        given = {name: value for name, value in said.items() if value}
        return {**_safe(self.about), **given, **self.shown}

    @property
    def remarks(self) -> dict[str, EventValue]:
        """What `fields` has and the sentence does not say."""
        said = self.values.keys() - set(self.kind.also)
        return {name: value for name, value in self.fields.items() if name not in said}

    @property
    def shown(self) -> dict[str, EventValue]:
        """The values, safe to be shown."""
        return _safe(self.values)


def _safe(values: Mapping[str, EventValue]) -> dict[str, EventValue]:
    return {
        name: escaped(value, VALUE_CHARACTERS_MAX) if isinstance(value, str) else value
        for name, value in values.items()
    }


def local_event(
    kind: EventKind, job: str = "", about: Mapping[str, EventValue] = NOTHING, **values: EventValue
) -> JobEvent:
    """An event that this process sees itself, now. `about` is in the lines of a task's own thread
    already."""
    return JobEvent(kind, values, JobId(job), about=about)


def some(words: Sequence[str], count: int = 0) -> str:
    """The first of some words, with the number of the others, of `count` in all."""
    more = (count or len(words)) - NAMED_MAX
    return ", ".join(words[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def beginnings(partitions: Sequence[tuple[str, int, bool]]) -> str:
    """Where partitions begin, in words: of each the name, the position, and whether nothing is left
    of it."""
    found = [
        f"{_end_of(name)} {'has ended' if ended else f'at {position}'}"
        for name, position, ended in partitions[:NAMED_MAX]
    ]
    return some(found, len(partitions))


def _end_of(name: str) -> str:
    """The end of a name, which is what files in one folder differ in."""
    name = without_secrets(name)
    return name if len(name) <= NAME_CHARACTERS_MAX else f"...{name[-NAME_CHARACTERS_MAX:]}"


# --- what an entry of the log says --------------------------------------------------------------

SUBMITTED = EventKind("job-submitted", "submitted, with {size}", "a job enters the cluster")
REPLACES = EventKind(
    "job-upgrades",
    "submitted, with {size}, in the place of job {old}",
    "a job enters the cluster that takes over the state of another one",
)
SAVEPOINT = EventKind(
    "job-savepoint",
    "begins with savepoint {place} of job {old}",
    "the savepoint with which a job begins is loaded",
)
REPLACED = EventKind(
    "job-upgraded", "ended: job {successor} takes its place", "a job ends, because one upgrades it"
)
ALLOCATED = EventKind(
    "job-taken",
    "taken: {size}: {tasks}",
    "a job gets peers, when it had none",
    also=("peers", "workers", "version"),
)
REALLOCATED = EventKind(
    "job-reallocated",
    "allocated anew, because {why}: {size}: {tasks}",
    "the peers of a job change; its inputs go on at their frontiers",
    also=("peers", "workers", "version"),
)
WAITS = EventKind(
    "job-waits", "waits: {why}", "a job has no peers, and when the reason for that changes"
)
WORKER_READY = EventKind(
    "worker-ready",
    "worker {worker} is ready: {size} of version {version}",
    "the peers of one worker can receive on all their channels",
    detail=True,
)
RUNS = EventKind(
    "job-runs",
    "runs: ready with {size}",
    "all peers are ready, and inputs read",
    also=("version",),
)
SUSPENDED = EventKind("job-suspended", "suspended", "a job gives its peers to others")
RESUMED = EventKind("job-resumed", "resumed", "a suspended or paused job may go on")
PAUSED = EventKind(
    "job-paused", "paused: its inputs read nothing new", "a job is brought to rest, for an upgrade"
)
RESTED = EventKind(
    "job-rested", "at rest: nothing of it is in flight", "a paused job has come to rest"
)
DRAINS = EventKind(
    "job-drains",
    "drains: its inputs read nothing new any more",
    "a job is to complete with what it has read",
)
OPTIONS_SET = EventKind("options-set", "set: {options}", "keys of tasks get other values")
PARTITIONS = EventKind(
    "partitions-found",
    "task {task} has {size}",
    "the partitions of a source are numbered",
    also=("count",),
)
SOURCE_ENDED = EventKind(
    "source-ended", "task {task} has ended, and all it gave is complete", "a source is exhausted"
)
SEALED = EventKind("output-sealed", "task {task} is sealed", "all that an output wrote is final")
RESTARTED = EventKind(
    "task-restarted",
    "task {task} begins anew on a new peer, {count} times in a row",
    "a lifecycle has asked for a restart",
    level="warning",
)
PROCESS_LOST = EventKind(
    "process-lost",
    "a process died while task {task} was in user code",
    "the death of a worker process is counted against a task",
    level="warning",
)
COMPLETED = EventKind("job-completed", "completed", "a job has done all it had to do")
KILLED = EventKind("job-killed", "killed{why}", "somebody stops a job for ever, or its fluxPolicy")
FAILED = EventKind("job-failed", "failed: {why}", "a task ends its job, as its code has failed")
FORGOTTEN = EventKind(
    "job-forgotten", "forgotten, with all that was beside the log", "a job that ended is collected"
)
NO_CHANGE = EventKind(
    "no-change", "{command} changes nothing", "somebody asks for what is so already, or too late"
)
WORKER_JOINED = EventKind(
    "worker-joined",
    "worker {worker} has joined",
    "a worker is a member of the cluster",
    detail=True,
)
WORKER_LEFT = EventKind(
    "worker-left", "worker {worker}{where} has left", "a worker has ended in order"
)
WORKER_LOST = EventKind(
    "worker-lost",
    "worker {worker}{where} is declared dead by worker {watcher}",
    "the session of a worker is gone: what it ran is given to others",
    level="warning",
)

FROM_THE_LOG = (
    SUBMITTED, REPLACES, SAVEPOINT, REPLACED, WAITS, ALLOCATED, REALLOCATED, WORKER_READY, RUNS,
    SUSPENDED, RESUMED, PAUSED, RESTED, DRAINS, OPTIONS_SET, PARTITIONS, SOURCE_ENDED, SEALED,
    RESTARTED, PROCESS_LOST, COMPLETED, KILLED, FAILED, FORGOTTEN, NO_CHANGE, WORKER_JOINED,
    WORKER_LEFT, WORKER_LOST,
)  # fmt: skip
"""Workers and `onyx events` show them."""


# --- what only a worker sees --------------------------------------------------------------------

TASK_STARTED = EventKind(
    "task-started",
    "task {task} starts on {peers} of this worker",
    "peers of this worker have got a task",
    also=("version",),
)
TASK_REFUSED = EventKind(
    "task-refused",
    "task {task} is not started: its lifecycle says no, and is asked again",
    "`startTask` of a lifecycle has refused for the first time",
    level="warning",
)
TASK_WAITS = EventKind(
    "task-waits",
    "task {task} waits in {phase}: {why}",
    "what a task needs has not been there for some seconds, and every 30 s after that",
    level="warning",
)
TASK_STALLS = EventKind(
    "task-stalls",
    "task {task} does not advance for {seconds} s: {why}",
    "a task stands still, and when the reason changes; `onyx jobs` shows which one is the cause",
    also=("peer",),
)
INPUT_BEGINS = EventKind(
    "input-begins",
    "task {task} begins to read {size}: {positions}",
    "an input opens partitions that are new to this peer, each at the position of its frontier",
)
STATE_TAKEN_OVER = EventKind(
    "state-taken-over",
    "task {task} has taken over {shards} shards: {records} records of {logs} logs, in {seconds} s",
    "a task with state, or an exactly-once output, has taken over what others had",
    also=("version",),
)
QUERY_TAKEN_OVER = EventKind(
    "query-taken-over",
    "task {task} drives the query of the job: {committed}",
    "the driver of a job on Spark has looked what is committed, and from where the query goes on",
)
TASK_SUPERSEDED = EventKind(
    "task-superseded",
    "task {task} cannot go on with what it began: {why}",
    "another peer owns what this one had; it is replayed",
    level="warning",
)
TASK_REPLACED = EventKind(
    "task-replaced",
    "task {task} begins anew, on a new peer",
    "a task was superseded, and no new allocation has come",
    level="warning",
)
TASK_RESTARTS = EventKind(
    "task-restarts",
    "task {task}: restart {count} of at most {most} in {seconds} s, after {phase}: {why}",
    "a task has failed, and a lifecycle says `restart`",
    level="warning",
)
TASK_FAILED = EventKind(
    "task-failed",
    "is killed: task {task}, {phase}: {why}",
    "a task has failed, and its job with it (`ONYX_TELEMETRY_LOG_FAILURES`)",
    level="error",
)
TASK_SEALS = EventKind(
    "task-seals",
    "task {task} is sealed by peer {peer}",
    "a peer of this worker was elected to do it",
)
TASK_STOPPED = EventKind(
    "task-stopped",
    "task {task} stops on {peers} of this worker: {why}",
    "peers of this worker have lost a task",
)
MORE_EVENTS = EventKind(
    "more-events",
    "{count} more events with this entry of the log: `onyx events` has them",
    "an entry concerns so many jobs that a worker does not log all of it",
    also=("entry",),
)
WORKER_BEGAN = EventKind(
    "worker-began",
    "joined tenancy {tenancy} of the log at {address} with {peers} peers; modules: {modules}{code}",
    "this worker is a member of the cluster, for the first time or again",
)
WORKER_PAUSED = EventKind(
    "worker-paused",
    "the log at {address} does not answer: tasks are paused",
    "this worker has not heard from the log for two thirds of its session timeout",
    level="warning",
)
WORKER_RESUMED = EventKind(
    "worker-resumed",
    "the log at {address} answers again and the session lives: tasks resume",
    "the session of a paused worker has survived",
)
WORKER_ENDED = EventKind(
    "worker-ended",
    "incarnation {worker} ended: {why}; starting a new one",
    "this worker was declared dead or has lost its session, and joins under a new id",
    level="warning",
)

FROM_A_WORKER = (
    TASK_STARTED, TASK_REFUSED, TASK_WAITS, TASK_STALLS, INPUT_BEGINS, STATE_TAKEN_OVER,
    QUERY_TAKEN_OVER, TASK_SUPERSEDED, TASK_REPLACED, TASK_RESTARTS, TASK_FAILED, TASK_SEALS,
    TASK_STOPPED, MORE_EVENTS, WORKER_BEGAN, WORKER_PAUSED, WORKER_RESUMED, WORKER_ENDED,
)  # fmt: skip
"""Only the log of the worker has them."""
