"""Windowed tasks are sources too: outputs are sealed, and jobs complete, when they have ended."""

from __future__ import annotations

from typing import Any

import pytest

from onyx.ids import GroupId, JobId, Position, TaskName
from onyx.replica import machine
from onyx.replica.effects import RemoveState
from onyx.replica.entry import Command, Entry
from onyx.replica.state import Partitions, Replica

JOB, READ, COUNT, WRITE = JobId("job"), TaskName("read"), TaskName("count"), TaskName("write")


def applied(*commands: tuple[str, dict[str, Any]]) -> Replica:
    replica = Replica()
    for number, (name, args) in enumerate(commands, 1):
        replica = machine.apply(replica, Entry(Position(number), Command(name, args)))
    return replica


def submitted(**args: Any) -> tuple[str, dict[str, Any]]:
    tasks = {"tasks": [READ, COUNT, *args.get("outputs", ())], "inputs": [READ]}
    return "submit-job", {
        "id": JOB,
        **tasks,
        "windowed": [COUNT],
        "task-scheduler": "balanced",
        **args,
    }


GROUP = [
    ("prepare-join-cluster", {"joiner": "g"}),
    *(("add-virtual-peer", {"id": f"p{n}", "group-id": "g", "peer-site": {}}) for n in range(3)),
]


def partitions(task: str, count: int) -> tuple[str, dict[str, Any]]:
    return "register-partitions", {"job": JOB, "task": task, "count": count, "digest": "d"}


def exhausted(task: str, *numbers: int) -> tuple[str, dict[str, Any]]:
    return "exhaust-input", {"job": JOB, "task": task, "partitions": list(numbers)}


def test_shards_are_numbered_after_the_partitions_of_inputs() -> None:
    shards = ("register-partitions", {"job": JOB, "task": COUNT, "count": 128})
    replica = applied(submitted(), partitions(READ, 3), shards)
    assert replica.partitions[JOB][COUNT] == Partitions(3, 128, "")


def test_outputs_are_sealed_when_windowed_tasks_have_ended_too() -> None:
    before = [*GROUP, submitted(outputs=[WRITE]), partitions(READ, 1), partitions(COUNT, 2)]
    before += [exhausted(READ, 0), exhausted(COUNT, 1)]
    assert JOB not in applied(*before).sealers
    assert WRITE in applied(*before, exhausted(COUNT, 2)).sealers[JOB]


@pytest.mark.parametrize("last", [READ, COUNT])
def test_a_job_without_outputs_is_complete_when_its_sources_have_ended(last: str) -> None:
    ends = {str(READ): exhausted(READ, 0), str(COUNT): exhausted(COUNT, 1, 2)}
    first = ends.pop(READ if last == COUNT else COUNT)
    before = [*GROUP, submitted(), partitions(READ, 1), partitions(COUNT, 2), first]
    assert applied(*before).jobs == (JOB,)
    assert applied(*before, ends[last]).completed_jobs == (JOB,)


@pytest.mark.parametrize("groups", [1, 3])
def test_one_group_removes_the_state_of_a_job_that_is_complete_or_forgotten(groups: int) -> None:
    names = [GroupId(f"g{n}") for n in range(groups)]
    joined = Replica(groups=tuple(names))
    submission = Entry(Position(1), Command(*submitted(stateful=True)))
    running = machine.apply(joined, submission)
    for ended in (
        Entry(Position(5), Command("complete-job", {"job-id": JOB})),
        Entry(Position(6), Command("kill-job", {"job": JOB})),
    ):
        after = machine.apply(running, ended)
        gone = machine.apply(after, Entry(Position(9), Command("gc", {"id": "client"})))
        told = [
            [each for name in names for each in machine.effects(entry, old, new, name)]
            for entry, old, new in ((ended, running, after), (ended, after, gone))
        ]
        removals = [[each for each in some if isinstance(each, RemoveState)] for some in told]
        kept = ended.command.fn == "kill-job"
        assert removals == [[] if kept else [RemoveState(JOB)], [RemoveState(JOB)]]
