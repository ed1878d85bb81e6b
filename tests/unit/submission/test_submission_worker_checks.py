"""Answers of workers to the check of a job before an upgrade, as entries of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.log.memory_log import MemoryLog
from tests.support.log.submissions import submit_job
from tests.support.log.vouching import voucher

from onyx.client.client import Client
from onyx.errors import JobRefused, Unavailable
from onyx.ids import JobId, Position
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.replica import machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import AddVirtualPeer, Gc, SubmitJob, VouchJob
from onyx.replica.state import Replica
from onyx.submission import preflight
from onyx.submission.preflight import NOBODY, WorkerCheck, lacks_peers
from onyx.upgrade.plan import upgrading


class History:
    """A log that is written by the test, and the replica after it."""

    def __init__(self) -> None:
        self.replica = Replica()
        self.heard: list[WorkerCheck] = []

    def write(self, command: Command) -> None:
        entry = Entry(Position(self.replica.version + 1), command)
        self.replica = machine.apply(self.replica, entry)
        for each in self.heard:
            each.hear(entry, self.replica)

    def join(self, group: str, peers: int = 1) -> None:
        """A worker, and its virtual peers."""
        self.replica = replace(
            self.replica,
            groups=(*self.replica.groups, group),  # type: ignore[arg-type]
        )
        for number in range(peers):
            site = {"address": f"{group}.example:7777"}
            self.write(AddVirtualPeer(id=f"{group}-{number}", group_id=group, peer_site=site))

    def leave(self, group: str) -> None:
        left = tuple(each for each in self.replica.groups if each != group)
        self.replica = replace(self.replica, groups=left)
        self.write(Gc(id="none"))


def asked(history: History) -> WorkerCheck:
    found = WorkerCheck("digest")
    history.heard.append(found)
    history.write(found.command)
    return found


def vouch(history: History, found: WorkerCheck, group: str, *problems: str) -> None:
    history.write(VouchJob(id=found.check, group=group, problems=problems))


def test_a_job_can_run_when_every_worker_answers_that_it_can() -> None:
    history = History()
    history.join("a")
    history.join("b")
    found = asked(history)
    vouch(history, found, "a")
    assert not found.complete
    vouch(history, found, "b")
    assert (found.complete, found.problems()) == (True, ())


def test_one_worker_that_cannot_is_enough_and_is_named() -> None:
    history = History()
    for each in ("a", "b", "c"):
        history.join(each)
    found = asked(history)
    vouch(history, found, "a")
    vouch(history, found, "b", "task age: there is no ages:age")
    vouch(history, found, "c")
    (problem,) = found.problems()
    assert problem == "task age: there is no ages:age (1 of 3 workers: b.example:7777)"


def test_the_same_answer_of_all_workers_is_one_problem() -> None:
    history = History()
    for each in ("a", "b"):
        history.join(each)
    found = asked(history)
    for each in ("a", "b"):
        vouch(history, found, each, "no such module")
    assert found.problems() == ("no such module (all workers)",)


def test_a_worker_that_leaves_need_not_answer_and_one_that_joins_is_not_asked() -> None:
    history = History()
    for each in ("a", "b"):
        history.join(each)
    found = asked(history)
    history.join("late")
    vouch(history, found, "a")
    vouch(history, found, "late", "of no account")
    assert "b.example:7777" in found.silent()
    history.leave("b")
    assert (found.complete, found.problems()) == (True, ())


def test_without_any_worker_left_the_job_cannot_run() -> None:
    history = History()
    history.join("a")
    found = asked(history)
    history.leave("a")
    assert found.complete
    assert found.problems() == (NOBODY,)


def test_answers_to_another_question_do_not_count() -> None:
    history = History()
    history.join("a")
    found, other = asked(history), asked(history)
    vouch(history, other, "a")
    assert (found.complete, other.complete) == (False, True)


def test_a_check_and_its_answers_change_nothing() -> None:
    history = History()
    history.join("a")
    before = history.replica
    vouch(history, asked(history), "a", "problem")
    assert replace(history.replica, version=before.version) == before


def submission(
    job: str, upgrades: str | None = None, least: Any = None, tags: Any = None
) -> SubmitJob:
    return submit_job(
        job,
        "in out",
        inputs=["in"],
        outputs=["out"],
        min_required_peers=least,
        required_tags=tags,
        upgrades=upgrades,
    )


@pytest.mark.parametrize(
    ("least", "tags", "why"),
    [
        ({"in": 1, "out": 3}, {}, ""),
        ({"in": 2, "out": 3}, {}, "needs 5 peers"),
        ({}, {"out": ["gpu"]}, "task out needs a peer with tags [gpu]"),
    ],
)
def test_peers_that_the_new_job_would_lack_are_missed_before_the_old_one_is_killed(
    least: dict[str, int], tags: dict[str, list[str]], why: str
) -> None:
    """Four peers, all of which the old job has."""
    history = History()
    history.join("a", peers=4)
    history.write(submission("old"))
    lacking = lacks_peers(
        history.replica, JobId("old"), submission("new", "old", least=least, tags=tags)
    )
    assert why in lacking
    assert bool(lacking) == bool(why)


def test_an_old_job_without_peers_may_be_upgraded_by_one_that_waits() -> None:
    history = History()
    history.join("a", peers=1)
    history.write(submission("old"))
    assert not lacks_peers(history.replica, JobId("old"), submission("new", "old"))


# --- the client -----------------------------------------------------------------------------------


def job(name: str, stage: int = 1) -> Job:
    spec = {
        "workflow": [["in", "out"]],
        "catalog": [
            {"name": "in", "type": "input", "plugin": "generator", "batchSize": stage},
            {"name": "out", "type": "output", "plugin": "stdout", "batchSize": 1},
        ],
        "metadata": {"jobId": name},
    }
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    return parse_mapping({**head, "spec": spec})


@contextmanager
def cluster(problems: Sequence[str] | None) -> Iterator[Client]:
    """Job `old`, and one worker."""
    log = MemoryLog()
    with voucher(log, problems):
        client = Client(log.client(), "balanced")
        client.submit(job("old"))
        yield client


def test_a_job_that_workers_cannot_run_kills_nothing() -> None:
    with cluster(["task in: there is no m:gone"]) as client:
        new = upgrading(job("new"), "old")
        with pytest.raises(JobRefused, match=r"there is no m:gone \(the worker\)"):
            client.submit(new)
        problems = [each.message for each in client.examine(new).problems]
        assert problems == ["task in: there is no m:gone (the worker)"]
        assert client.replica().jobs == ("old",)


def test_a_worker_that_does_not_answer_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "ANSWER_TIMEOUT_S", 0.01)
    with cluster(None) as client:
        with pytest.raises(
            Unavailable,
            match=r"(no answer from voucher|the check is not in the log) within 0\.01 s",
        ):
            client.submit(upgrading(job("new"), "old"))
        assert client.replica().jobs == ("old",)


def test_without_workers_nothing_is_killed_but_a_first_job_is_accepted() -> None:
    client = Client(MemoryLog().client(), "balanced")
    client.submit(job("old"))
    with pytest.raises(JobRefused, match="no worker is there"):
        client.submit(upgrading(job("new"), "old"))
    client.kill(JobId("old"))
    assert client.submit(upgrading(job("new"), "old")).job == "new"


def test_a_dry_run_of_a_first_job_asks_the_workers_too() -> None:
    with cluster(["task in: there is no m:gone"]) as client:
        (problem,) = client.examine(job("first")).problems
        assert "m:gone" in problem.message
