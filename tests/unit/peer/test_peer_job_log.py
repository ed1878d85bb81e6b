"""What a worker logs of jobs: entries and effects, and the lines that come of them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.support.log.replica_log import ReplicaLog

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, Position, Slot, TaskName
from onyx.peer.work import job_log
from onyx.peer.work.job_log import JobLog
from onyx.replica.command import Command
from onyx.replica.commands import GroupLeaveCluster, KillJob, PrepareJoinCluster, SuspendJob
from onyx.replica.commands.signal_ready import signal
from onyx.replica.effects import Effect, SealTask, StartTask, StopTask


class Workers(ReplicaLog):
    """Each group of the cluster logs what it reads."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        super().__init__()
        caplog.set_level(logging.INFO, "onyx.jobs")
        self._caplog = caplog

    def lines(self, group: str, command: Command, writer: str = "") -> list[str]:
        """What a group logs of a command: the names of events, each with its job."""
        self.tell(command, writer=writer)
        assert self.entry is not None
        self._caplog.clear()
        log = JobLog(GroupId(group))
        log.read(self.old, self.entry, self.new)
        return [f"{event.kind.name} {event.job}".strip() for event in self.events]

    @property
    def events(self) -> list[Any]:
        return [record.onyx_event for record in self._caplog.records]


@pytest.fixture
def workers(caplog: pytest.LogCaptureFixture) -> Workers:
    return Workers(caplog)


def test_a_worker_logs_what_happens_to_the_jobs_that_it_works_on(workers: Workers) -> None:
    workers.join("g", peers=3).submit("j").join("h", peers=3).submit("k")
    run = workers.new.run("k")
    on_k = {peer.split("-")[0] for peers in run.allocation.values() for peer in peers}
    before = workers.new
    found = {}
    for group in ("g", "h"):
        workers.new = before
        found[group] = "job-killed k" in workers.lines(group, KillJob(job="k"))
    assert found == {group: group in on_k for group in ("g", "h")}


def test_what_happens_to_a_job_on_which_nobody_works_is_logged_by_one(workers: Workers) -> None:
    workers.join("g", "h", "i").submit()
    before = workers.new
    found = []
    for group in ("g", "h", "i"):
        workers.new = before
        found += workers.lines(group, SuspendJob(job="j"))
    assert found == ["job-suspended j"]


def test_the_death_of_a_worker_is_logged_by_the_others_with_what_becomes_of_the_job(
    workers: Workers,
) -> None:
    workers.join("g", "h", peers=3).submit()
    before = workers.new
    for group in ("g", "h"):
        workers.new = before
        found = workers.lines(group, GroupLeaveCluster(id="h"), writer="g")
        assert found == ["worker-lost", "job-reallocated j"], group
        assert "because worker h is gone: 3 peers on 1 worker" in workers.events[1].text


def test_a_worker_logs_that_it_is_ready_and_not_that_others_are(workers: Workers) -> None:
    workers.join("g", "h", peers=2).submit()
    version = workers.new.run("j").allocation_version
    before = workers.new
    assert workers.lines("g", signal("j", version, "g-0"), "g") == ["worker-ready j"]
    workers.new = before
    assert workers.lines("h", signal("j", version, "g-0"), "g") == []


def test_what_was_before_a_worker_joined_is_not_logged(workers: Workers) -> None:
    workers.join("g", peers=3).submit()
    assert workers.lines("new", KillJob(job="j")) == []
    assert workers.lines("new", PrepareJoinCluster(joiner="new")) == []


def test_of_an_entry_about_many_jobs_the_first_events_are_logged_and_how_many_there_are_more(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "EVENTS_MAX", 3)
    workers.join("h", peers=10).join("g")
    for number in range(5):
        workers.submit(f"j{number}", tasks="read write", saturation=2)
    lines = workers.lines("h", GroupLeaveCluster(id="h"), writer="g")
    assert lines == ["worker-lost", "job-waits j0", "job-waits j1", "more-events"]
    assert workers.events[-1].text.startswith("3 more events with this entry")


def test_a_bug_in_what_is_logged_ends_no_worker(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("g")

    workers.join("g")
    monkeypatch.setattr(job_log.story, "events_of", broken)
    workers.tell(KillJob(job="j"))
    assert workers.entry is not None
    JobLog(GroupId("g")).read(workers.old, workers.entry, workers.new)
    assert caplog.messages == ["a bug in Onyx: please report it"]


# --- tasks --------------------------------------------------------------------------------------

J, V = JobId("j"), AllocationVersion(Position(7))


def start(peer: str, task: str = "parse") -> StartTask:
    return StartTask(PeerId(peer), J, TaskName(task), Slot(0), V)


def stop(peer: str, task: str = "parse", why: str = "job-killed") -> StopTask:
    return StopTask(PeerId(peer), J, TaskName(task), why)


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        ([start("p1"), start("p2"), start("p3", "write")],
         ["task parse starts on peers p1, p2 of this worker",
          "task write starts on peer p3 of this worker"]),
        ([start(f"p{n}") for n in range(10)],
         ["task parse starts on peers p0, p1, p2, p3, p4, p5, p6, p7 and 2 more of this worker"]),
        ([stop("p1"), stop("p2")],
         ["task parse stops on peers p1, p2 of this worker: job-killed"]),
        ([SealTask(PeerId("p1"), J, TaskName("write"))], ["task write is sealed by peer p1"]),
        ([stop("p1", why="job-killed"), start("p1", "write")],
         ["task parse stops on peer p1 of this worker: job-killed",
          "task write starts on peer p1 of this worker"]),
    ],
)  # fmt: skip
def test_peers_that_get_or_lose_a_task_together_share_a_line(
    effects: list[Effect], expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "onyx.jobs")
    about = {"name": "flights", "metadata": {"team": "north"}}
    replica = ReplicaLog().submit("j", **about).new
    JobLog(GroupId("g")).given(effects, replica)
    assert [each.getMessage() for each in caplog.records] == expected
    said = [getattr(each, "onyx_event").fields for each in caplog.records]  # noqa: B009
    named = {(each["job_name"], each["metadata.team"], each["job"]) for each in said}
    assert named == {("flights", "north", "j")}
