"""What the log of a cluster says of jobs, as values: the input of plans and statuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import astuple

from onyx.ids import JobId
from onyx.model.limits import NOTHING_DECLARED

Stage = Literal["unknown", "live", "completed", "killed", "fenced"]
"""`fenced`: killed before it was submitted, so that a submission under way comes too late."""


class JobLag(msgspec.Struct, frozen=True):
    """How far behind a job is and how fast, in whole numbers, as its workers measure it; None of
    what they do not know."""

    segments: int | None = None
    """Segments that are there and not processed."""
    bytes: int | None = None
    seconds: int | None = None
    """Age of the oldest of them."""
    per_s: int | None = None
    """Segments a second that inputs read."""
    latency_ms: int | None = None
    """99 % of the segments of the last minute were processed, with all that follows from them,
    within so long."""

    def is_far_from(self, other: JobLag) -> bool:
        """Whether that is worth a word: a tenth more or less, or none where there was some."""
        return any(
            mine != its and (None in (mine, its) or 0 in (mine, its) or abs(mine - its) > 0.1 * its)
            for mine, its in zip(astuple(self), astuple(other), strict=True)
        )

    def caught_up(self, other: JobLag) -> bool:
        """Whether nothing is behind where something was, or the other way round."""
        pairs = ((self.segments, other.segments), (self.bytes, other.bytes))
        return any((mine == 0) != (its == 0) for mine, its in pairs)


class LogJob(msgspec.Struct, frozen=True):
    """A job as the replica knows it."""

    stage: Stage = "unknown"
    suspended: bool = False
    draining: bool = False
    paused: str = ""
    """What becomes of it, if its inputs are paused for an upgrade."""
    options: str = NOTHING_DECLARED
    """The fingerprint of the manifest whose values hold of the keys that may change while it
    runs."""
    tasks: tuple[tuple[str, int], ...] = ()
    """Peers by task, parents before children."""
    required: int = 0
    """Peers that it needs to start."""
    starting: bool = False
    """Some of its peers are not ready yet."""
    waiting_for: str = ""
    """Why it has no peers."""
    displaced: bool = False
    """It has none because the job scheduler gave those that it had to other jobs."""
    stalled: str = ""
    """Why it does not advance, as its workers report it."""
    deaths: str = ""
    """How worker processes have died lately, of those that may have to do with it."""
    deaths_reason: str = ""
    """The deaths in one word."""
    halted: bool = False
    """It completes nothing because of these deaths."""
    failure: str = ""
    """What a task said before it killed the job; empty when a command killed it."""
    partitions: int = 0
    exhausted: int = 0
    """Partitions of its sources that have been read and processed to their end."""
    collected: bool = False
    """It ended long ago: only how is known of it."""
    savepoint: str = ""
    """The place of the savepoint with which it has begun, as long as the log knows."""
    completed: int | None = None
    """Segments of its inputs that are completely processed; None when that is not known."""
    lag: JobLag | None = None
    """What its workers measure; None: not all of them have answered of late."""

    @property
    def peers(self) -> int:
        """Peers that work on it, of all tasks."""
        return sum(count for _, count in self.tasks)

    @property
    def submitted(self) -> bool:
        """The submission of the job is in the log."""
        return self.stage not in ("unknown", "fenced")

    @property
    def ended(self) -> bool:
        """The job never runs again."""
        return self.stage in ("completed", "killed", "fenced")


UNKNOWN = LogJob()


class Log(msgspec.Struct, frozen=True):
    """The log of the job's cluster, as followed by this operator."""

    position: int
    jobs: Mapping[JobId, LogJob]
    """The jobs asked for; others are unknown."""
    orphans: tuple[JobId, ...] = ()
    """Jobs that have not ended of objects that had the name before."""
    heir: str = ""
    """The OnyxCluster that has taken over the log, if the one that the object names is gone."""

    def job(self, job: JobId | None) -> LogJob:
        """A job by its id; unknown if it is not among those asked for."""
        return self.jobs.get(job, UNKNOWN) if job is not None else UNKNOWN


TAKEN = "TenancyTaken"
"""Reason of the trouble of a log that is another OnyxCluster's."""
CONNECTING = "Connecting"
"""Reason of the trouble of a log that was never tried yet."""


class Trouble(msgspec.Struct, frozen=True):
    """Why the log cannot be used now."""

    reason: str
    """The log is not known: `ClusterNotFound`, `ClusterRefused`, `ClusterNotReady`,
    `TooManyClusters`; or cannot be used: `Connecting`, `LogUnreachable`, `TenancyTaken`."""
    message: str
    cause: str = ""
    """What is wrong with ZooKeeper, in one word: `DiskFull`, `NoQuorum` or `Unreachable`; empty
    where it is something else."""
    without_workers: bool = False
    """There are no workers either; otherwise jobs go on as they were."""


class UpgradeVerdict(msgspec.Struct, frozen=True):
    """Whether the wanted job can upgrade the object's job, by the log and both manifests."""

    upgrades: JobId | None = None
    """The job whose state it would carry over: the object's job; or the older one that it
    upgrades, as long as it has not carried over the state of that."""
    refusal: str = ""
    """Why it cannot, a line each."""
    waits: str = ""
    """Why it cannot yet, though it may later: ask again."""
    again_in_s: float | None = None
    """When to ask again; of a refusal, for workers may come that can run it."""
    pauses: bool = False
    """That job is to come to rest before: its inputs are paused, and what is in flight arrives."""
    remarks: str = ""
    """What is not carried over."""
