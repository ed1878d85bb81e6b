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
from typing import Literal, TypeAlias

import msgspec

from onyx.ids import NO_POSITION, JobId, Position
from onyx.replica.authors import bounded

Level = Literal["info", "warning", "error"]
EventValue: TypeAlias = str | int | float | bool
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
        return {name: value for name, value in said.items() if value} | self.shown

    @property
    def shown(self) -> dict[str, EventValue]:
        """The values, safe to be shown."""
        return {
            name: bounded(value) if isinstance(value, str) else value
            for name, value in self.values.items()
        }


def local_event(kind: EventKind, job: str = "", **values: EventValue) -> JobEvent:
    """An event that this process sees itself, now."""
    return JobEvent(kind, values, JobId(job))


def some(words: Sequence[str]) -> str:
    """The first of some words, with the number of the others."""
    more = len(words) - NAMED_MAX
    return ", ".join(words[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


# --- what an entry of the log says --------------------------------------------------------------

SUBMITTED = EventKind("job-submitted", "submitted, with {size}", "a job enters the cluster")
REPLACES = EventKind(
    "job-upgrades",
    "submitted, with {size}, in the place of job {old}",
    "a job enters the cluster that takes over the state of another one",
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
    "{task} has {size}",
    "the partitions of a source are numbered",
    also=("count",),
)
SOURCE_ENDED = EventKind(
    "source-ended", "{task} has ended, and all it gave is complete", "a source is exhausted"
)
SEALED = EventKind("output-sealed", "{task} is sealed", "all that an output wrote is final")
RESTARTED = EventKind(
    "task-restarted",
    "{task} begins anew on a new peer, {count} times in a row",
    "a lifecycle has asked for a restart",
    level="warning",
)
PROCESS_LOST = EventKind(
    "process-lost",
    "a process died while {task} was in user code",
    "the death of a worker process is counted against a task",
    level="warning",
)
COMPLETED = EventKind("job-completed", "completed", "a job has done all it had to do")
KILLED = EventKind("job-killed", "killed{why}", "a job is stopped for ever", level="warning")
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
WORKER_LEFT = EventKind("worker-left", "worker {worker} has left", "a worker has ended in order")
WORKER_LOST = EventKind(
    "worker-lost",
    "worker {worker} is declared dead by worker {watcher}",
    "the session of a worker is gone: what it ran is given to others",
    level="warning",
)

FROM_THE_LOG = (
    SUBMITTED, REPLACES, REPLACED, WAITS, ALLOCATED, REALLOCATED, WORKER_READY, RUNS, SUSPENDED,
    RESUMED, PAUSED, RESTED, DRAINS, OPTIONS_SET, PARTITIONS, SOURCE_ENDED, SEALED, RESTARTED,
    PROCESS_LOST, COMPLETED, KILLED, FORGOTTEN, NO_CHANGE, WORKER_JOINED, WORKER_LEFT, WORKER_LOST,
)  # fmt: skip
"""Workers and `onyx events` show them."""
