"""How often a task was restarted, whoever has it."""

from __future__ import annotations

from tests.support.log.replica_log import ReplicaLog
from tests.support.log.runs import by_job

from onyx.replica import canonical
from onyx.replica.commands import KillJob, RestartTask


def running() -> ReplicaLog:
    return ReplicaLog().join("g", peers=3).submit()


def counts(log: ReplicaLog) -> dict[str, int]:
    return dict(log.new.run("j").restarts)


def test_restarts_are_counted_by_task_and_begin_anew_after_work() -> None:
    log = running()
    for task in ("parse", "parse", "write"):
        log.tell(RestartTask(job="j", task=task))
    assert counts(log) == {"parse": 2, "write": 1}
    log.tell(RestartTask(job="j", task="parse", afresh=True))
    assert counts(log) == {"parse": 1, "write": 1}
    assert canonical.decode(canonical.encode(log.new)) == log.new


def test_a_task_that_does_not_exist_and_a_job_that_has_ended_have_no_count() -> None:
    log = running()
    log.tell(RestartTask(job="j", task="nowhere"))
    log.tell(RestartTask(job="k", task="parse"))
    assert not by_job(log.new, "restarts")
    log.tell(RestartTask(job="j", task="parse"))
    log.tell(KillJob(job="j"))
    log.tell(RestartTask(job="j", task="parse"))
    assert not by_job(log.new, "restarts")
