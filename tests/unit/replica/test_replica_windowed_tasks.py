"""Windowed tasks are sources too: outputs are sealed, and jobs complete, when they have ended."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.support.log.submissions import submit_job

from onyx.ids import GroupId, JobId, Position, TaskName
from onyx.replica import machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AddVirtualPeer,
    ExhaustInput,
    Gc,
    KillJob,
    PrepareJoinCluster,
    RegisterPartitions,
    SealOutput,
    SubmitJob,
)
from onyx.replica.effects import RemoveState
from onyx.replica.state import Partitions, Replica

JOB, READ, COUNT, WRITE = JobId("job"), TaskName("read"), TaskName("count"), TaskName("write")


def applied(*commands: Command) -> Replica:
    replica = Replica()
    for number, command in enumerate(commands, 1):
        replica = machine.apply(replica, Entry(Position(number), command))
    return replica


def submitted(outputs: Sequence[str] = (), *, stateful: bool = False) -> SubmitJob:
    return submit_job(
        JOB,
        (READ, COUNT, *outputs),
        inputs=[READ],
        outputs=outputs,
        windowed=[COUNT],
        stateful=stateful,
    )


GROUP = [
    PrepareJoinCluster(joiner="g"),
    *(AddVirtualPeer(id=f"p{n}", group_id="g", peer_site={}) for n in range(3)),
]


def partitions(task: str, count: int) -> Command:
    return RegisterPartitions(job=JOB, task=task, count=count, digest="d")


def exhausted(task: str, *numbers: int) -> Command:
    return ExhaustInput(job=JOB, task=task, partitions=numbers)


def test_shards_are_numbered_after_the_partitions_of_inputs() -> None:
    shards = RegisterPartitions(job=JOB, task=COUNT, count=128)
    replica = applied(submitted(), partitions(READ, 3), shards)
    assert replica.partitions(JOB)[COUNT] == Partitions(3, 128, "")


def test_outputs_are_sealed_when_windowed_tasks_have_ended_too() -> None:
    before = [*GROUP, submitted(outputs=[WRITE]), partitions(READ, 1), partitions(COUNT, 2)]
    before += [exhausted(READ, 0), exhausted(COUNT, 1)]
    assert not applied(*before).run(JOB).sealers
    assert WRITE in applied(*before, exhausted(COUNT, 2)).run(JOB).sealers


@pytest.mark.parametrize("last", [READ, COUNT])
def test_a_job_without_outputs_is_complete_when_its_sources_have_ended(last: str) -> None:
    ends = {str(READ): exhausted(READ, 0), str(COUNT): exhausted(COUNT, 1, 2)}
    first = ends.pop(READ if last == COUNT else COUNT)
    before = [*GROUP, submitted(), partitions(READ, 1), partitions(COUNT, 2), first]
    assert applied(*before).jobs == (JOB,)
    assert applied(*before, ends[last]).completed_jobs == (JOB,)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("followed", [False, True])
def test_one_group_removes_the_state_of_a_job_that_is_complete_or_forgotten(
    groups: int, followed: bool
) -> None:
    names = [GroupId(f"g{n}") for n in range(groups)]
    joined = Replica(groups=tuple(names))
    command = submitted(outputs=[WRITE], stateful=True)
    command = replace(command, spec=replace(command.spec, followed=followed))
    submission = Entry(Position(1), command)
    running = machine.apply(joined, submission)
    for ended in (
        Entry(Position(5), SealOutput(job=JOB, task=WRITE)),
        Entry(Position(6), KillJob(job=JOB)),
    ):
        after = machine.apply(running, ended)
        gone = machine.apply(after, Entry(Position(9), Gc(id="client")))
        reported = [
            [each for name in names for each in machine.effects(entry, old, new, name)]
            for entry, old, new in ((ended, running, after), (ended, after, gone))
        ]
        removals = [[each for each in some if isinstance(each, RemoveState)] for some in reported]
        kept = followed or isinstance(ended.command, KillJob)
        assert removals == [[] if kept else [RemoveState(JOB)], [RemoveState(JOB)]]
