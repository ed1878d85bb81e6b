"""Entries that take a job out of a savepoint."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.log.replica_log import ReplicaLog
from tests.support.log.submissions import job_spec

from onyx.ids import JobId, TaskName
from onyx.replica import canonical
from onyx.replica.commands import Gc, LoadJob, SubmitJob
from onyx.replica.commands.load_job import LoadedPartitions, loaded_for
from onyx.replica.jobs import listed_jobs
from onyx.replica.state import Partitions
from onyx.replica.story import events_of

NEW = JobId("new")
OLD = loaded_for(NEW)
SPEC = job_spec(["read", "write"], inputs=["read"], outputs=["write"])
FIRST = LoadJob(
    id=OLD,
    spec=replace(SPEC, owner="a namespace elsewhere", upgrades=JobId("older")),
    place="/savepoints/noon",
    origin=JobId("flights"),
    partitions={TaskName("read"): LoadedPartitions(0, 2, "digest")},
    ready_version=7_000,
)


def submitted() -> ReplicaLog:
    log = ReplicaLog()
    log.tell(SubmitJob(id=NEW, spec=replace(SPEC, upgrades=OLD)))
    return log


def test_what_is_loaded_is_a_job_that_was_killed_and_that_nobody_owns() -> None:
    found = submitted().tell(FIRST)
    record = found.records[OLD]
    assert OLD in found.killed_jobs
    assert record.run is None
    assert record.partitions["read"] == Partitions(0, 2, "digest")
    assert (record.ready_version, record.spec.owner, record.spec.upgrades) == (7_000, "", None)
    assert not found.loaded(OLD).whole
    assert listed_jobs(found) == [NEW]
    assert canonical.decode(canonical.encode(found)) == found


def test_the_second_entry_says_that_it_is_whole_and_the_story_of_the_job_has_that() -> None:
    log = submitted()
    log.tell(FIRST)
    found = log.tell(replace(FIRST, whole=True))
    assert found.loaded(OLD).whole
    (event,) = events_of(log.old, log.entry, log.new)
    assert (event.job, event.kind.name) == (NEW, "job-savepoint")
    assert event.text == "begins with savepoint /savepoints/noon of job flights"


@pytest.mark.parametrize("more", [{}, {"place": "/savepoints/other"}, {"whole": True}])
def test_another_entry_about_the_same_job_changes_nothing(more) -> None:
    log = submitted()
    log.tell(FIRST)
    whole = log.tell(replace(FIRST, whole=True))
    assert log.tell(replace(FIRST, **more)).records == whole.records


def test_the_place_of_another_savepoint_does_not_make_it_whole() -> None:
    log = submitted()
    log.tell(FIRST)
    assert not log.tell(replace(FIRST, place="/other/one", whole=True)).loaded(OLD).whole


def test_an_id_that_is_taken_stays_what_it_is() -> None:
    log = submitted()
    before = log.new
    assert log.tell(replace(FIRST, id=NEW, whole=True)).records == before.records


def test_it_is_kept_until_the_job_has_carried_its_state_over() -> None:
    log = submitted()
    log.tell(FIRST)
    assert OLD in log.tell(Gc(id="gc")).records
    assert OLD not in log.tell(Gc(id="gc", carried_over=(NEW,))).records
