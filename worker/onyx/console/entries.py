"""Entries of the log for people: what each is about, what it says, what it has changed; pure.

What has happened to jobs is in `replica/story`, in the words that workers log and `onyx events`
prints. Here is what a page needs besides: entries that concern one job, and those about members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

from onyx.console.words import listed, short, some
from onyx.history.replicas import Change
from onyx.ids import JobId
from onyx.replica.command import Command, Undecodable
from onyx.replica.commands import (
    AbortJoinCluster,
    AcceptJoinCluster,
    AddVirtualPeer,
    CheckJob,
    DrainJob,
    ExhaustInput,
    Gc,
    GroupLeaveCluster,
    KillJob,
    LeaveCluster,
    NotifyJoinCluster,
    PauseJob,
    PrepareJoinCluster,
    RegisterPartitions,
    ReportLoss,
    RestartTask,
    ResumeJob,
    SealOutput,
    SetOptions,
    SignalFailing,
    SignalReady,
    SignalRest,
    SubmitJob,
    SuspendJob,
    VouchJob,
)
from onyx.replica.job_events import JobEvent
from onyx.replica.story import events_of

Kind = Literal["job", "member", "task"]
PEOPLE = (SubmitJob, KillJob, SuspendJob, ResumeJob, DrainJob, SetOptions, PauseJob, Gc)
MEMBERS = (
    PrepareJoinCluster, NotifyJoinCluster, AcceptJoinCluster, AbortJoinCluster, AddVirtualPeer,
    GroupLeaveCluster, LeaveCluster,
)  # fmt: skip


def kind_of(command: Command) -> Kind:
    """What a command is about: what is done to jobs, who is there, or what tasks report."""
    if isinstance(command, PEOPLE):
        return "job"
    return "member" if isinstance(command, MEMBERS) else "task"


def said(command: Command, names: Mapping[str, str]) -> str:
    """What a command says, in words.

    Args:
        names: the names of jobs by their ids.
    """
    if isinstance(command, SignalReady):
        jobs = listed([called(each.job, names) for each in command.jobs], 3)
        count = sum(len(each.peers) for each in command.jobs)
        return f"{some(count, 'peer')} ready for {jobs}"
    if isinstance(command, Gc):
        ended = listed([called(each, names) for each in command.jobs or ()], 3)
        return f"forgotten: {ended}" if ended else "a collection of what is old"
    if isinstance(command, SetOptions):
        return f"{called(command.job, names)}: options of {listed(sorted(command.tasks))} set"
    if isinstance(command, RegisterPartitions):
        partitions = some(command.count, "partition")
        return f"{called(command.job, names)}: {command.task} has {partitions}"
    if isinstance(command, Undecodable):
        return f"cannot be read, and changes nothing: {command.reason}"
    words = _SAID.get(type(command), command.NAME)
    id = str(getattr(command, "id", ""))
    job = id if isinstance(command, SubmitJob) else str(getattr(command, "job", ""))
    group = getattr(command, "joiner", getattr(command, "observer", id))
    return words.format(c=command, job=called(job, names), group=short(str(group)))


_SAID: Mapping[type[Command], str] = {
    SubmitJob: "{job} submitted",
    KillJob: "{job} killed",
    SuspendJob: "{job} suspended",
    ResumeJob: "{job} resumed",
    DrainJob: "{job} drained",
    PauseJob: "{job} paused for an upgrade",
    SignalFailing: "{job}: a peer of {c.task} has had segments that fail, and no others",
    SignalRest: "{job}: {c.task} is at rest",
    PrepareJoinCluster: "worker {group} asks to join",
    NotifyJoinCluster: "worker {group} is announced to who will watch it",
    AcceptJoinCluster: "worker {group} is taken in",
    AbortJoinCluster: "worker {group} gives up joining",
    GroupLeaveCluster: "worker {group} has left",
    LeaveCluster: "a peer has left",
    AddVirtualPeer: "a peer more",
    ExhaustInput: "{job}: {c.task} has read and completed all",
    SealOutput: "{job}: output {c.task} is sealed",
    ReportLoss: "{job}: a process died in {c.task}",
    RestartTask: "{job}: {c.task} starts again",
    CheckJob: "may an upgrade run here?",
    VouchJob: "a worker has looked at an upgrade",
}


def called(job: str, names: Mapping[str, str]) -> str:
    """The name of a job, or the beginning of its id."""
    return names.get(job, "") or short(job)


def concerns(change: Change, job: JobId) -> bool:
    """Whether an entry has changed what is known of a job, or names it."""
    command = change.entry.command
    if job in (getattr(command, "job", ""), getattr(command, "id", "")):
        return True
    return change.old.records.get(job) is not change.new.records.get(job)


def history_of(changes: Sequence[Change], job: JobId, most: int) -> tuple[JobEvent, ...]:
    """What has happened to a job, the newest first; of so many entries at most."""
    concerned = [each for each in changes if concerns(each, job)][-most:]
    events = chain.from_iterable(events_of(*each, job.__eq__) for each in concerned)
    return tuple(reversed([each for each in events if not each.kind.detail]))


def members(change: Change) -> Iterator[str]:
    """What no event says of an entry: peers, and steps on the way into the ring."""
    old, new = change.old, change.new
    more = len(new.peers) - len(old.peers)
    if more:
        what = "more" if more > 0 else "fewer"
        yield f"{some(abs(more), 'peer')} {what}, {len(new.peers):,} in all"
    for group in new.prepared.values():
        if group not in old.prepared.values():
            yield f"worker {short(group)} is about to join"
    for group, watched in new.pairs.items():
        if old.pairs.get(group) != watched:
            yield f"worker {short(group)} watches {short(watched)}"
    if new.rejected > old.rejected:
        yield "the entry was refused, by everybody alike"
