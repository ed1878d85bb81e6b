"""The harness: the operator runs, is killed at any step, and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.operator.fake_api.doors import Failpoint
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster, job
from tests.operator.workers import Workers


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def workers(logs: Logs) -> Iterator[Workers]:
    with Workers(logs.log()) as group:
        yield group


def phase(wanted: str):  # type: ignore[no-untyped-def]
    return lambda found: found["status"]["phase"] == wanted


def life_of_a_job(api: FakeApi, logs: Logs, workers: Workers, operator: Operator) -> str:
    """Create a cluster and a job, let it run and complete, delete it; returns the job's id."""
    api.create(cluster())
    api.create(job())
    running = api.wait_for("onyxjobs", "job", phase("Running"))
    job_id: str = running["status"]["jobId"]
    workers.finish(job_id)
    api.wait_for("onyxjobs", "job", phase("Completed"))
    api.delete("onyxjobs", "job")
    api.wait_for("onyxjobs", "job", lambda found: found is None)
    return job_id


def test_a_job_lives_and_ends(api: FakeApi, logs: Logs, workers: Workers) -> None:
    with Operator(api, logs.connect) as operator:
        job_id = life_of_a_job(api, logs, workers, operator)

    assert len(operator.doors) == 1
    assert "append submit-job" in operator.steps
    assert job_id in logs.replica().completed_jobs


@pytest.mark.short(3)
@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [1, 4, 8])
def test_a_killed_operator_is_followed_by_another(
    api: FakeApi, logs: Logs, workers: Workers, step: int, after_effect: bool
) -> None:
    with Operator(api, logs.connect, failpoint=Failpoint(step, after_effect)) as operator:
        job_id = life_of_a_job(api, logs, workers, operator)

    assert len(operator.doors) == 2
    assert len(operator.steps) >= step
    assert after_effect or len(operator.steps) == step
    assert {command.id for command in logs.commands("submit-job")} == {job_id}
