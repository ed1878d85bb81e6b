"""A task in the middle of a job that is sealed, and then a source: a Spark stage."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from tests.support.log.submissions import submit_job

from onyx.ids import JobId, Position, TaskName
from onyx.replica import machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AddVirtualPeer,
    ExhaustInput,
    PrepareJoinCluster,
    RegisterPartitions,
    SealOutput,
)
from onyx.replica.state import Replica
from onyx.task.kinds import kind_of
from onyx.task.table import TaskKind

JOB, READ, STAGE, WRITE = JobId("job"), TaskName("read"), TaskName("stage"), TaskName("write")


def applied(*commands: Command) -> Replica:
    replica = Replica()
    for number, command in enumerate(commands, 1):
        replica = machine.apply(replica, Entry(Position(number), command))
    return replica


def started(outputs: Sequence[TaskName] = (WRITE,)) -> list[Command]:
    """A job of three tasks, or of two without an output behind the stage, whose partitions are
    known."""
    command = submit_job(
        JOB, (READ, STAGE, *outputs), inputs=[READ, STAGE], outputs=[STAGE, *outputs]
    )
    tasks = tuple(
        msgspec.structs.replace(task, fed_by=(READ,)) if task.name == STAGE else task
        for task in command.spec.tasks
    )
    spec = msgspec.structs.replace(command.spec, tasks=tasks)
    return [
        PrepareJoinCluster(joiner="g"),
        *(AddVirtualPeer(id=f"p{n}", group_id="g", peer_site={}) for n in range(3)),
        msgspec.structs.replace(command, spec=spec),
        RegisterPartitions(job=JOB, task=READ, count=1, digest="d"),
        RegisterPartitions(job=JOB, task=STAGE, count=2, digest="d"),
    ]


def exhausted(task: TaskName, *numbers: int) -> Command:
    return ExhaustInput(job=JOB, task=task, partitions=numbers)


def sealed(task: TaskName) -> Command:
    return SealOutput(job=JOB, task=task)


READ_ENDS = exhausted(READ, 0)
STAGE_ENDS = exhausted(STAGE, 1, 2)


def test_its_kind_is_that_of_a_stage_and_not_of_a_driver() -> None:
    assert kind_of(applied(*started()), JOB, STAGE) is TaskKind.STAGE


@pytest.mark.parametrize(
    ("events", "sealers"),
    [
        ([], set()),
        ([READ_ENDS], {STAGE}),
        ([READ_ENDS, sealed(STAGE)], set()),
        ([READ_ENDS, sealed(STAGE), exhausted(STAGE, 1)], set()),
        ([READ_ENDS, sealed(STAGE), STAGE_ENDS], {WRITE}),
    ],
)
def test_a_stage_is_sealed_when_what_feeds_it_has_ended_and_outputs_behind_it_later(
    events: list[Command], sealers: set[TaskName]
) -> None:
    replica = applied(*started(), *events)
    assert set(replica.run(JOB).sealers) == sealers
    assert JOB in replica.jobs


def test_the_job_is_complete_when_the_outputs_behind_the_stage_are_sealed() -> None:
    events = [READ_ENDS, sealed(STAGE), STAGE_ENDS, sealed(WRITE)]
    assert applied(*started(), *events).completed_jobs == (JOB,)


def test_without_outputs_behind_it_the_job_goes_on_until_the_stage_has_ended() -> None:
    """A reduce task without children is at the end of the job."""
    before = [*started(outputs=()), READ_ENDS, sealed(STAGE)]
    assert applied(*before).jobs == (JOB,)
    assert applied(*before, STAGE_ENDS).completed_jobs == (JOB,)


def test_a_stage_that_ended_before_it_was_sealed_ends_the_job_with_its_seal() -> None:
    """As in a job that drains before its partitions are listed: then there is nothing to read."""
    before = [*started(outputs=()), READ_ENDS, STAGE_ENDS]
    assert applied(*before).jobs == (JOB,)
    assert applied(*before, sealed(STAGE)).completed_jobs == (JOB,)
