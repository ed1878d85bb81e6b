"""The operator is killed at every step of an OnyxJob's life: nothing is lost, done twice, or left.

A step is all that reaches the world: a write to the API server, a write to the log. The operator
dies before the step, or after it without hearing the answer; another one is started and knows only
what it finds.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from tests.operator.fake_api.doors import Failpoint
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster, job
from tests.operator.test_watches import eventually
from tests.operator.workers import Workers
from tests.support.examples import some_of

from onyx.ids import JobId
from onyx.replica.state import Replica

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("leftovers_collected"),
]
"""A process that is killed closes nothing; here it leaves open connections to the collector."""


def running(found: Any) -> bool:
    return bool(found["status"]["phase"] == "Running" and found["status"]["reason"] == "Running")


def life(api: FakeApi, logs: Logs, policy: str) -> tuple[str, str]:
    """A job is created, edited and deleted; the ids that it had in the log."""
    api.create(job(upgradePolicy=policy))
    first: str = api.wait_for("onyxjobs", "job", running)["status"]["jobId"]
    api.patch("onyxjobs", "job", {"spec": {"catalog": job(version=20)["spec"]["catalog"]}})
    edited = api.wait_for(
        "onyxjobs", "job", lambda found: running(found) and found["status"]["jobId"] != first
    )
    api.delete("onyxjobs", "job")
    second = str(edited["status"]["jobId"])
    eventually(lambda: second in logs.replica().killed_jobs)
    return first, second


def lived(
    api: FakeApi, failpoint: Failpoint | None, policy: str = "Drain"
) -> tuple[Logs, Operator, tuple[str, str]]:
    logs = Logs()
    with Workers(logs.log()):
        with Operator(api, logs.connect):
            api.create(cluster())
            api.wait_for(
                "onyxclusters",
                "onyx",
                lambda found: any(each["type"] == "Reconciled" and each["status"] == "True"
                                  for each in found["status"]["conditions"]),
            )  # fmt: skip
        with Operator(api, logs.connect, failpoint=failpoint) as operator:
            jobs = life(api, logs, policy)
    gc.collect()
    return logs, operator, jobs


def check(replica: Replica, logs: Logs, jobs: tuple[str, str]) -> None:
    first, second = jobs
    assert replica.completed_jobs == (first,), "the old job was drained"
    assert replica.killed_jobs == (second,), "the deleted job was killed"
    check_submissions(replica, logs, jobs)


def check_resumed(replica: Replica, logs: Logs, jobs: tuple[str, str]) -> None:
    first, second = jobs
    assert replica.killed_jobs == jobs
    resumes = {each.spec.upgrades for each in logs.commands("submit-job")}
    assert resumes == {None, first}
    assert replica.upgrades(JobId(second)) == first
    check_submissions(replica, logs, jobs)


def check_submissions(replica: Replica, logs: Logs, jobs: tuple[str, str]) -> None:
    first, second = jobs
    assert not replica.jobs, "an orphan"
    submissions = [str(each.id) for each in logs.commands("submit-job")]
    assert list(dict.fromkeys(submissions)) == [first, second]
    assert replica.rejected == 0


STEPS = 27
"""Steps of an undisturbed life, those of the cluster among them; see the first test."""
WRITES = [
    "append submit-job", "append drain-job", "append submit-job", "append kill-job",
]  # fmt: skip


def test_an_undisturbed_life_takes_so_many_steps(api: FakeApi) -> None:
    logs, operator, jobs = lived(api, None)
    check(logs.replica(), logs, jobs)
    assert len(operator.doors) == 1
    assert [step for step in operator.steps if step.startswith("append")] == WRITES
    assert len(operator.steps) <= STEPS + 3, "failpoints reach the end, but for a step or two"


@pytest.mark.short(4)
@pytest.mark.parametrize("step", some_of(range(1, STEPS + 1)))
def test_a_kill_at_any_step_loses_nothing(api: FakeApi, step: int) -> None:
    """Before a step; a kill after it leaves the same world as one before the next."""
    logs, operator, jobs = lived(api, Failpoint(step))
    check(logs.replica(), logs, jobs)
    assert operator.doors[0].is_shut or len(operator.steps) <= step


EDITED = range(12, 24)
"""Steps from before an edit with upgradePolicy KeepState until the job runs that came of it."""


def test_the_steps_of_an_edit_that_resumes_are_among_those_at_which_it_is_killed(
    api: FakeApi,
) -> None:
    logs, operator, jobs = lived(api, None, "KeepState")
    check_resumed(logs.replica(), logs, jobs)
    writes = [each for each in operator.steps if each.startswith("append")]
    assert writes == [f"append {each}-job" for each in ("submit", "check", "submit", "kill")]
    first, _, second, _ = (at for at, each in enumerate(operator.steps, 1) if "append" in each)
    assert first < EDITED.start
    assert second in EDITED


@pytest.mark.short(2)
@pytest.mark.parametrize("step", some_of(EDITED))
def test_a_kill_at_any_step_of_an_edit_that_resumes_takes_the_state_once(
    api: FakeApi, step: int
) -> None:
    logs, operator, jobs = lived(api, Failpoint(step), "KeepState")
    check_resumed(logs.replica(), logs, jobs)
    assert operator.doors[0].is_shut or len(operator.steps) <= step
