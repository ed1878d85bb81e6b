"""Where a request is taken, by name or id: also when the job has ended and another goes on."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.log.memory_log import MemoryLog
from tests.support.log.replica_log import ReplicaLog

from onyx.client.submissions import submission
from onyx.ids import JobId
from onyx.model.canonical import to_mapping
from onyx.model.job import CatalogEntry, Job
from onyx.peer.router.inputs import LOOK_INTERVAL_S, RequestInput, RequestInputs
from onyx.replica.commands import DrainJob, Gc, KillJob, RegisterPartitions
from onyx.requests.request import Answer, Status


class World:
    """A log with jobs of one input, and what a worker that has read it says."""

    def __init__(self) -> None:
        self.replicas, self.clock = ReplicaLog(), ManualClock()
        self.log = MemoryLog().client()
        self.inputs = RequestInputs(lambda: self.replicas.new, self.log, self.clock)

    def submit(self, id: str, name: str = "orders", task: str = "in", upgrades: str = "") -> None:
        entries = (
            CatalogEntry(task, "input", plugin="requests"),
            CatalogEntry("out", "output", plugin="files", options={"path": "out"}),
        )
        job = Job(name, ((task, "out"),), entries)
        digest = self.log.put_chunk(msgspec.json.encode(to_mapping(job)))
        entry = submission(JobId(id), job, digest, "balanced")
        spec = replace(entry.spec, upgrades=JobId(upgrades) if upgrades else None)
        self.replicas.tell(replace(entry, spec=spec))

    def find(self, job: str, task: str = "", is_new: bool = False) -> str:
        """The id of the job that is found, or the status of the answer with its reason."""
        found = self.inputs.find(job, task, is_new)
        return found.job if isinstance(found, RequestInput) else f"{found.status}: {found.reason}"


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("name", ["orders", "orders-v2"])
@pytest.mark.parametrize("asked", ["orders", "old"])
def test_name_and_id_of_an_upgraded_job_lead_to_the_one_that_upgrades_it(
    world: World, asked: str, name: str
) -> None:
    world.submit("old")
    assert world.find(asked) == "old"
    world.submit("new", name, upgrades="old")
    assert world.find(asked) == "new"
    world.submit("newest", name, upgrades="new")
    assert world.find(asked) == "newest"


def test_the_id_of_a_job_that_is_forgotten_leads_to_the_one_that_upgrades_it(world: World) -> None:
    world.submit("old")
    world.submit("new", upgrades="old")
    world.replicas.tell(Gc(id="me", carried_over=(JobId("new"),), remember=10))
    assert "old" not in world.replicas.new.records
    assert world.find("old") == "new"


@pytest.mark.parametrize("asked", ["orders", "old"])
def test_what_may_be_in_the_journal_of_a_killed_job_is_never_refused_for_good(
    world: World, asked: str
) -> None:
    world.submit("old")
    world.replicas.tell(KillJob(job="old"))
    killed = "job old was killed or has failed: what is in its journals is processed by the job"
    assert world.find(asked, is_new=True).startswith(f"unknown: {killed}")
    assert world.find(asked).startswith(f"unavailable: {killed}")
    world.submit("new", "later", upgrades="old")
    assert world.find(asked) == "new"


def test_a_job_that_has_completed_says_so_and_does_not_deny_what_it_had(world: World) -> None:
    world.submit("old")
    world.replicas.complete("old")
    assert world.find("orders", is_new=True).startswith("unknown: job old has completed")
    assert world.find("old").startswith("unavailable: job old has completed")


def test_a_job_that_runs_comes_before_those_of_its_name_that_have_ended(world: World) -> None:
    world.submit("old")
    world.replicas.tell(KillJob(job="old"))
    world.submit("other")
    assert world.find("orders") == "other"


def test_an_input_that_an_upgrade_has_dropped_may_have_taken_the_request(world: World) -> None:
    world.submit("old")
    assert world.find("old", "elsewhere").startswith("unknown: job old has no input 'elsewhere'")
    world.submit("new", task="other", upgrades="old")
    assert world.find("orders", "in", is_new=True).startswith("unknown: job new has no input 'in'")
    assert world.find("orders", "in").startswith("unavailable: job new has no input 'in'")


def test_an_input_says_whether_a_job_of_before_may_have_taken_the_request(world: World) -> None:
    world.submit("old")
    world.submit("other", "others")
    world.submit("new", upgrades="old")
    for job, follows in (("orders", True), ("others", False)):
        found = world.inputs.find(job, "in", is_new=False)
        assert isinstance(found, RequestInput)
        assert found.follows is follows


def test_a_name_of_several_jobs_is_refused_for_good_to_new_requests_only(world: World) -> None:
    world.submit("one")
    world.submit("two")
    several = "orders may be any of 2 jobs: give the id: one or two"
    assert world.find("orders", is_new=True) == f"invalid: {several}"
    assert world.find("orders").startswith(f"unavailable: {several}")


def test_a_job_that_is_not_read_yet_is_waited_for(world: World) -> None:
    assert world.find("orders") == "unknown: there is no job 'orders'"
    world.log.append(KillJob(job="another"))
    assert world.find("orders") == "unavailable: there is no job 'orders' yet", "it may be there"
    world.clock.advance(1.0)
    assert world.find("orders", is_new=True) == "unavailable: there is no job 'orders' yet"
    world.clock.advance(LOOK_INTERVAL_S / 2)  # the log is not asked again so soon
    assert world.find("orders", is_new=True) == "unavailable: there is no job 'orders' yet"
    world.replicas.tell(KillJob(job="another"))
    world.clock.advance(1.0)
    assert world.find("orders") == "unknown: there is no job 'orders'"


def test_a_job_that_drains_is_found_for_what_it_has(world: World) -> None:
    world.replicas.join("group", peers=2)
    world.submit("old")
    world.replicas.tell(DrainJob(job="old"))
    found = world.inputs.find("old", "in", is_new=False)
    assert not isinstance(found, Answer)
    assert world.inputs.stopped(found) is None
    assert world.inputs.drains(found)
    assert not world.inputs.ended(found)


def test_a_job_that_was_told_to_drain_before_it_began_takes_nothing(world: World) -> None:
    """It lists no partitions: nobody has read any."""
    world.replicas.join("group", peers=2)
    world.submit("old")
    found = world.inputs.find("old", "in", is_new=False)
    assert not isinstance(found, Answer)
    world.replicas.tell(DrainJob(job="old"))
    world.replicas.tell(RegisterPartitions(job="old", task="in", count=0, digest="d"))
    answer = world.inputs.waits(found)
    assert answer is not None
    assert (answer.status, answer.reason[:14]) == (Status.UNAVAILABLE, "job old drains")


def test_the_reason_names_the_status_that_clients_may_act_on(world: World) -> None:
    world.submit("old")
    world.replicas.tell(KillJob(job="old"))
    found = world.inputs.find("old", "in", is_new=False)
    assert isinstance(found, Answer)
    assert (found.status, found.retry_after_s) == (Status.UNAVAILABLE, 1.0)
