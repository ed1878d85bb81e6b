"""Workers note with which code a job began, and say when they run it with other code."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest
from tests.support.log.memory_log import MemoryGroupLog, MemoryLog
from tests.support.log.replica_log import ReplicaLog

from onyx.client.statuses import status_at
from onyx.history.collection import sweep_documents
from onyx.ids import GroupId, JobId
from onyx.log import documents
from onyx.peer.watch.code_watch import POOLS_MAX, CodeWatch, note
from onyx.replica.commands import AddVirtualPeer
from onyx.replica.state import Replica
from onyx.reports.codes import began_with

OLD, NEW = "3f2a9c01", "9d01aa3e"
JOB = JobId("j")


def now(work: Callable[[], None]) -> Future[None]:
    future: Future[None] = Future()
    future.set_result(work())
    return future


class Cluster:
    """One log, and workers with two peers each, all of which have the job."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.replica = Replica()
        self._groups: dict[str, MemoryGroupLog] = {}

    def works(self, *workers: tuple[str, str, str]) -> None:
        """Exactly these workers (name, hash of the code, tag) are there and look at their jobs."""
        told = ReplicaLog().join(*(name for name, _, _ in workers))
        for name, code, tag in workers:
            for number in 0, 1:
                site = {"code": code} if code else {}
                told.tell(
                    AddVirtualPeer(
                        id=f"{name}-{number}",
                        group_id=name,
                        peer_site=site,
                        tags=(tag,) if tag else (),
                    )
                )
        self.replica = told.submit(JOB, "in out").new
        for name, code, tag in workers:
            watch = CodeWatch(self.group(name), code, (tag,) if tag else (), now)
            watch.look(self.replica, permitted=True)

    def group(self, name: str) -> MemoryGroupLog:
        if name not in self._groups:
            self._groups[name] = self.log.group(GroupId(name))
            self._groups[name].register_pulse()
        return self._groups[name]

    def began(self) -> dict[str, str]:
        document = self.log.client().get_document(documents.code(JOB))
        return began_with(None if document is None else document.data)

    def status(self) -> tuple[dict[str, int], str]:
        found = status_at(self.log.client(), self.replica, JOB)
        return found.code, found.code_warning


def test_the_first_worker_notes_with_which_code_a_job_began(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.works(("a", OLD, ""), ("b", OLD, ""))
    assert cluster.began() == {"": OLD}
    assert cluster.status() == ({OLD: 4}, "")
    assert not caplog.records


def test_a_worker_that_comes_back_with_other_code_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.works(("a", OLD, ""))
    cluster.works(("a2", NEW, ""))
    assert cluster.began() == {"": OLD}
    assert f"job j began with code {OLD}, and this worker runs it with {NEW}" in caplog.text
    code, warning = cluster.status()
    assert code == {NEW: 2}
    assert warning.startswith(f"its peers run other code than it began with: 2 run {NEW}, with")

    caplog.clear()
    cluster.works(("a3", OLD, ""))
    assert cluster.status() == ({OLD: 2}, "")
    assert not caplog.records


def test_peers_with_different_code_are_told_apart() -> None:
    cluster = Cluster()
    cluster.works(("a", OLD, ""), ("b", NEW, ""), ("c", OLD, ""))
    code, warning = cluster.status()
    assert (code, list(code)) == ({OLD: 4, NEW: 2}, [OLD, NEW])
    assert f"its peers run different code: 4 run {OLD}, 2 run {NEW}, with {OLD}" in warning


def test_workers_with_other_tags_may_have_other_code() -> None:
    cluster = Cluster()
    cluster.works(("a", OLD, ""), ("b", NEW, "gpu"))
    assert cluster.began() == {"": OLD, "gpu": NEW}
    assert cluster.status() == ({OLD: 2, NEW: 2}, "")


def test_workers_without_modules_note_nothing() -> None:
    cluster = Cluster()
    cluster.works(("a", "", ""))
    assert cluster.began() == {}
    assert cluster.status() == ({}, "")


def test_a_worker_compares_each_job_once_and_again_when_that_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.works(("a", OLD, ""))
    watch = CodeWatch(cluster.group("a"), NEW, (), now)
    cluster.log.suspend(GroupId("a"))
    watch.look(cluster.replica, permitted=True)
    assert "this worker runs it" not in caplog.text

    cluster.log.resume(GroupId("a"))
    for version in range(3):
        watch.look(cluster.replica.with_run(JOB, cluster.replica.run(JOB)), permitted=version > 0)
    assert caplog.text.count("this worker runs it") == 1


def test_two_workers_that_note_at_the_same_time_note_one_code() -> None:
    cluster = Cluster()
    found = {note(cluster.group(name), JOB, "", code) for name, code in (("a", OLD), ("b", NEW))}
    assert found == {OLD}


def test_the_pools_that_are_noted_are_bounded() -> None:
    cluster = Cluster()
    log = cluster.group("a")
    for number in range(POOLS_MAX + 3):
        assert note(log, JOB, f"tag{number}", OLD) == OLD
    assert len(cluster.began()) == POOLS_MAX


def test_the_note_goes_with_the_job() -> None:
    cluster = Cluster()
    cluster.works(("a", OLD, ""))
    sweep_documents(cluster.log.client(), lambda: cluster.replica, lambda job: None)
    assert cluster.began() == {"": OLD}
    sweep_documents(cluster.log.client(), Replica, lambda job: None)
    assert cluster.began() == {}
