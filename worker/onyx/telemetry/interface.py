"""What the runtime tells about itself, and the twin that listens to nothing.

The classes here do nothing and import nothing: they are both the interface and what a worker
without a metrics endpoint uses. `metrics.py` has the same with Prometheus behind it. A hook is
called once a batch or entry, never once a segment.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.stalls import Reason
from onyx.telemetry.catalog import Direction, PeerState, Refusal


class TaskMetrics:
    """What one virtual peer tells about its task. Used by one thread at a time."""

    __slots__ = ()

    def batch(
        self,
        read: int,
        written: int,
        read_s: float = 0.0,
        apply_s: float = 0.0,
        write_s: float = 0.0,
    ) -> None:
        """A batch is done: segments taken and emitted, and the seconds spent on each stage. A
        stage that did not happen has 0."""

    def backpressured(self, seconds: float) -> None:
        """The task could not go on for so long because a destination refused."""

    def retried(self, segments: int) -> None:
        """Segments have been read again from the source."""

    def failed(self, segments: int = 1) -> None:
        """A user's function raised."""

    def dead_letters(self, segments: int) -> None:
        """Segments have failed, and a dead letter about each was sent."""

    def queue(self, segments: int, capacity: int) -> None:
        """What waits in front of this peer now."""

    def source(self, pending: int, offset: int) -> None:
        """Segments read and not complete, and positions completed, of this peer's partitions."""

    def late(self, segments: int) -> None:
        """Segments were later than their windows allow."""

    def recovering(self, done_bytes: int, size_bytes: int) -> None:
        """So much of the state has been read, on another thread while the task waits for it."""

    def watermark(self, time_ms: int) -> None:
        """Event time has come to this for the peer, in milliseconds since 1970."""

    def spark_stage(self, seconds: float, *, ok: bool) -> None:
        """A Spark stage ended."""

    def close(self) -> None:
        """The peer leaves the task: what it had waiting no longer counts."""


class GroupMetrics:
    """What one peer group tells. Safe to use from several threads."""

    __slots__ = ()

    def task(self, job: str, task: str) -> TaskMetrics:
        """For one virtual peer on one task; `job` and `task` are names. Close it when it leaves."""
        return NULL_TASK

    def entry_applied(self, fn: str, position: int, seconds: float) -> None:
        """A log entry has been applied to the replica."""

    def entry_rejected(self) -> None:
        """A log entry changed nothing, because no replica can read its command."""

    def log_tail(self, position: int) -> None:
        """An entry has been read from the log; it is applied next."""

    def peers(self, state: PeerState, count: int) -> None:
        """So many virtual peers of this process are in this state now."""

    def session_lost(self) -> None:
        """The ZooKeeper session of this incarnation has expired."""

    def stream(self, direction: Direction, messages: int, size_bytes: int) -> None:
        """Frames that have been sent or received since the last call."""

    def reconnected(self, times: int) -> None:
        """Streams that have been dialled again since the last call."""

    def refused(self, reason: Refusal, calls: int) -> None:
        """Calls of other processes that have not been let in since the last call."""

    def stalls(self, found: Sequence[tuple[str, str, Reason, float]]) -> None:
        """All tasks of this process that do not advance: names of job and task, why, and for how
        many seconds."""

    def job_started(self, job: str, job_id: str, guarantee: str) -> None:
        """A peer of this process works on the job."""

    def job_ended(self, job: str, job_id: str, guarantee: str) -> None:
        """No peer of this process works on the job any more."""


NULL_TASK = TaskMetrics()
NULL_GROUP = GroupMetrics()
