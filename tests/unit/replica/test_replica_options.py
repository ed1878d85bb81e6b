"""`set-options`: values of keys that change while a job runs, by hand and by declaration."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.log.submissions import job_spec

from onyx.ids import JobId, Position
from onyx.model import changing
from onyx.model.job import CatalogEntry
from onyx.model.keys.fields import section_of
from onyx.replica import canonical, machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AddVirtualPeer,
    KillJob,
    PrepareJoinCluster,
    SetOptions,
    SubmitJob,
    SuspendJob,
)
from onyx.replica.commands.set_options import TaskOptions
from onyx.replica.state import Replica

JOB = JobId("j1")


def after(*commands: Command, replica: Replica | None = None) -> Replica:
    found = Replica() if replica is None else replica
    for command in commands:
        found = machine.apply(found, Entry(Position(found.version + 1), command))
    return found


def submitted(options: str = "defaults") -> Replica:
    spec = job_spec(["in", "work", "out"], inputs=["in"], outputs=["out"], options=options)
    peers = [AddVirtualPeer(id=f"p{number}", group_id="g0") for number in range(3)]
    return after(PrepareJoinCluster(joiner="g0"), *peers, SubmitJob(id=JOB, spec=spec))


def put(declares: str = "", job: str = JOB, **tasks: dict[str, int]) -> SetOptions:
    values = {task.rstrip("_"): TaskOptions.of(each) for task, each in tasks.items()}
    return SetOptions(job=job, tasks=values, declares=declares)


def options(replica: Replica) -> dict[str, dict[str, int]]:
    return {task: dict(each) for task, each in replica.run(JOB).options.items()}


def test_values_are_set_beside_those_that_were_set_before() -> None:
    found = after(put(in_={"maxPending": 5, "batchSize": 2}), replica=submitted())
    found = after(put(in_={"batchSize": 3}, work={"batchTimeout": 7}), replica=found)
    assert options(found) == {
        "in": {"maxPending": 5, "batchSize": 3},
        "work": {"batchTimeout": 7},
    }


def test_nothing_is_allocated_anew() -> None:
    before = submitted()
    found = after(put(in_={"maxPending": 5}), replica=before)
    was, now = before.run(JOB), found.run(JOB)
    assert now.allocation
    assert (now.allocation, now.allocation_version) == (was.allocation, was.allocation_version)
    entry = Entry(Position(before.version + 1), put(in_={"maxPending": 5}))
    assert machine.effects(entry, before, found, "g0") == ()
    assert machine.reactions(entry, before, found, "g0") == ()


def test_a_job_that_does_not_run_and_a_task_that_it_lacks_change_nothing() -> None:
    running = submitted()
    for command in (put(job="nobody", in_={"maxPending": 5}), put(nowhere={"maxPending": 5})):
        assert after(command, replica=running).records == running.records
    killed = after(KillJob(job=JOB), replica=running)
    assert after(put(in_={"maxPending": 5}), replica=killed).records == killed.records


def test_a_declaration_replaces_all_that_was_set() -> None:
    found = after(put(in_={"maxPending": 5}), replica=submitted())
    found = after(put("b", work={"batchSize": 9}), replica=found)
    assert options(found) == {"work": {"batchSize": 9}}
    assert found.run(JOB).declared == "b"


def test_a_declaration_that_holds_is_not_made_again() -> None:
    """So what was set by hand since stays until another one comes."""
    found = submitted("a")
    assert after(put("a", work={"batchSize": 9}), replica=found).records == found.records
    found = after(put("b", work={"batchSize": 9}), put(in_={"maxPending": 5}), replica=found)
    assert after(put("b", work={"batchSize": 9}), replica=found).records == found.records
    found = after(put("a"), replica=found)
    assert options(found) == {}
    assert found.run(JOB).declared == "a"


def test_a_suspended_job_takes_values_and_they_go_with_its_end() -> None:
    found = after(SuspendJob(job=JOB), put(in_={"maxPending": 5}), replica=submitted())
    assert options(found) == {"in": {"maxPending": 5}}
    assert canonical.decode(canonical.encode(found)) == found
    assert options(after(KillJob(job=JOB), replica=found)) == {}


@pytest.mark.parametrize("key", changing.KEYS)
def test_entries_have_the_keys_and_the_limits_of_manifests(key: str) -> None:
    fields = {each.encode_name: each for each in msgspec.structs.fields(TaskOptions)}
    assert list(fields) == list(changing.KEYS)
    most = section_of(CatalogEntry).by_yaml[key].kind.maximum
    assert TaskOptions.of({key: most}).given() == {key: most}
    for wrong in (most + 1, -1, "5", 1.5, None):
        with pytest.raises(msgspec.ValidationError):
            TaskOptions.of({key: wrong})
