"""Reasons why a task does not advance: the reports of workers, and the cause among them.

A task that waits for another one reports that, and the other one has a report of its own. So a job
is shown with the cause and not with all reports: the task that waits for no other task, the most
downstream one first.

An idle task is not stalled: a source without anything to read, an output without anything to write,
a job that is suspended.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from onyx.ids import JobId, PeerId, TaskName


class Reason(StrEnum):
    """What keeps a task from going on."""

    FUNCTION = "function-running"
    """The user's function has not come back."""
    WINDOWS = "windows-running"
    """The stall of an aggregation, a trigger, or what it calls."""
    CONDITION = "condition-running"
    """The stall of a flow condition or what groups segments."""
    LIFECYCLE = "lifecycle-running"
    PLUGIN = "plugin-running"
    """The plugin of an input or output has not come back."""
    SPARK = "spark-stage"
    UNAVAILABLE = "unavailable"
    """A disk is full, a folder is gone, a server does not answer."""
    ZOOKEEPER = "zookeeper"
    START_TASK = "start-task"
    """A lifecycle's start_task says no."""
    RESTARTING = "restarting"
    LOADING = "loading"
    RECOVERING = "recovering"
    NOT_DURABLE = "not-durable"
    """An output has been given segments and does not say that they are durable."""
    RETRY = "waiting-for-retry"
    """Segments rest before a flow condition has them read again."""
    SUSPECTS = "suspects"
    """Segments that have ended a worker process are tried one by one, alone in the process."""
    LOOKUP = "waiting-for-state"
    """Another task has not answered what it keeps for a batch."""
    INBOX = "left-in-inbox"
    """A processor takes nothing of what has come to it."""
    AHEAD = "ahead-in-event-time"
    """An input waits for a slower one, because of `maxDrift`."""
    PEERS = "waiting-for-peers"
    THREAD = "thread-taken"
    """Another task of the process does not give back the thread that both share."""
    DOWNSTREAM = "downstream-full"
    COMPLETIONS = "waiting-for-completions"


_LATER = {
    Reason.RECOVERING: 1,
    Reason.LOADING: 1,
    Reason.NOT_DURABLE: 1,
    Reason.RETRY: 1,
    Reason.PEERS: 2,
    Reason.LOOKUP: 2,
    Reason.INBOX: 2,
    Reason.SUSPECTS: 2,
    Reason.THREAD: 2,
    Reason.DOWNSTREAM: 2,
    Reason.COMPLETIONS: 3,
}
"""Reasons that may only be messengers of another one, those that say least last."""

SLOW = frozenset(
    {Reason.FUNCTION, Reason.WINDOWS, Reason.CONDITION, Reason.LIFECYCLE, Reason.PLUGIN}
)
"""Reasons for which one peer is slow while others may go on: alone they do not stop a job."""


class StackFrame(msgspec.Struct, frozen=True):
    """A line of the user's code."""

    file: str
    line: int
    function: str
    code: str = ""


class Stall(msgspec.Struct, frozen=True):
    """One task on one peer that does not advance."""

    job: JobId
    task: TaskName
    peer: PeerId
    reason: Reason
    why: str
    """In words, without how long."""
    since_ms: int
    """Since when, in milliseconds since 1970, by the worker's clock."""
    alone: bool = False
    """It holds up the whole job: nothing of it is in its loop yet, or nothing any more."""
    segments: int = 0
    """The segments of an input, those that are read and not complete; else those that wait here."""
    oldest_ms: int = 0
    """The time of an input: when the oldest of them was read; 0 when that is not known."""
    is_input: bool = False
    overdue_ms: int = 0
    """The time-out of an input that waits for segments for longer than its `pendingTimeout`: that;
    else 0."""
    in_time: bool = False
    """The job itself has it rest for so long (`batchTimeout`, `rollSeconds`)."""
    stack: tuple[StackFrame, ...] = ()
    """Where the user's code is, innermost last."""


def cause(stalls: Sequence[Stall], order: Sequence[TaskName]) -> Stall | None:
    """What keeps a job from advancing; None if it is not known to stand still. A stage of Spark may
    take its time, but tasks that wait meanwhile wait for it.

    Args:
        stalls: of the job, from all workers.
        order: its tasks, parents before children.
    """
    if not any(each.alone or each.reason not in SLOW for each in stalls):
        return None
    if all(each.in_time for each in stalls):
        return None
    order_of = {task: number for number, task in enumerate(order)}
    return min(
        (each for each in stalls if not each.in_time or each.reason is Reason.SPARK),
        key=lambda each: (_LATER.get(each.reason, 0), -order_of.get(each.task, -1), each.since_ms),
    )


def sentence(found: Stall, stalls: Sequence[Stall], now_ms: int) -> str:
    """What is shown of a job: task, peer, for how long, why, and what waits for it."""
    same = {each.peer for each in stalls if (each.task, each.reason) == (found.task, found.reason)}
    more = f" and {len(same) - 1} more" if len(same) > 1 else ""
    inputs = [each for each in stalls if each.is_input and each.segments]
    held = sum(each.segments for each in inputs) or found.segments
    oldest = min((each.oldest_ms for each in inputs if each.oldest_ms), default=0)
    age = f", the oldest for {seconds(oldest, now_ms)}" if oldest else ""
    waiting = f"; {held:,} segments are in flight{age}{_overdue(inputs)}" if held else ""
    return (
        f"does not advance: task {found.task} (peer {found.peer[:8]}{more}), "
        f"for {seconds(found.since_ms, now_ms)}: {found.why}{waiting}"
    )


def status_sentence(found: Stall, stalls: Sequence[Stall]) -> str:
    """The sentence as `sentence`, but since when and not for how long: for a status that is written
    only when it changes."""
    same = {each.peer for each in stalls if (each.task, each.reason) == (found.task, found.reason)}
    more = f" and {len(same) - 1} more" if len(same) > 1 else ""
    since = instant(found.since_ms)
    waiting = _overdue([each for each in stalls if each is not found])
    late = f"; segments are in flight{waiting}" if waiting else ""
    return f"task {found.task} (peer {found.peer[:8]}{more}), since {since}: {found.why}{late}"


def _overdue(inputs: Sequence[Stall]) -> str:
    overdue_ms = max((each.overdue_ms for each in inputs), default=0)
    if not overdue_ms:
        return ""
    late = f", longer than pendingTimeout ({overdue_ms:,} ms)"
    return f"{late}: what a worker still works on is not read again"


def instant(wall_ms: int) -> str:
    """A moment in milliseconds since 1970, to the second."""
    return datetime.fromtimestamp(wall_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(since_ms: int, now_ms: int) -> str:
    """A time that has passed, by two clocks that may differ."""
    return f"{max(0, now_ms - since_ms) / 1000:,.0f} s"
