"""Keys that change while a job runs, against a real cluster in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, taken, until
from tests.support.patience import WAIT_S

from onyx import api
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.plugins.channel import Channel
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
SEGMENTS = 5_000


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(3, modules=[FUNCTIONS]) as env:
        yield env


def start(env: TestEnv, read: str = "") -> tuple[JobId, Channel]:
    """A job of so many segments."""
    target = channel()
    spec = f"""
        workflow: [[read, work], [work, write]]
        catalog:
          - {{name: read, type: input, plugin: generator, {read}
              options: {{segments: {SEGMENTS}, partitions: 2}}}}
          - {{name: work, type: function, fn: "f:same"}}
          - {{name: write, type: output, plugin: channel, options: {{channel: {target.name}}}}}
    """
    return env.submit(manifest(spec)), target


def test_a_job_that_is_slowed_down_completes_when_it_is_let_go(env: TestEnv) -> None:
    """At one segment a second it would take an hour."""
    job, target = start(env, "segmentsPerSecondMax: 1,")
    until(env, lambda replica: len(replica.run(job).ready) == 3)
    version = env.client.replica().run(job).allocation_version
    api.set_options(env.settings, job, "work", {"batchSize": 50, "batchTimeout": "20ms"})
    api.set_options(env.settings, job, "read", {"maxPending": 500, "checkpointSegments": 100})
    status = env.client.status(job)
    assert status.options == {
        "read": {"maxPending": 500, "checkpointSegments": 100},
        "work": {"batchSize": 50, "batchTimeout": 20},
    }
    assert status.state == "running"
    assert len(target.take(timeout_s=WAIT_S)) < SEGMENTS
    api.set_options(env.settings, job, "read", {"segmentsPerSecondMax": "default"})
    assert env.client.status(job).options["read"]["segmentsPerSecondMax"] is None
    assert env.client.replica().run(job).allocation_version == version, "nothing moved"
    assert env.client.wait(job, WAIT_S)
    assert env.client.status(job).options == {}
    assert sorted(each["n"] for each in taken(target))[-1] == SEGMENTS - 1


@pytest.mark.parametrize(
    ("task", "given", "why"),
    [
        ("nowhere", {"maxPending": 5}, "nowhere: is no task of the job"),
        ("read", {"plugin": "files"}, "plugin: cannot change while the job runs"),
        ("read", {"maxPending": "much"}, 'maxPending: is "much", but must be an integer'),
    ],
)
def test_what_cannot_be_set_is_told_at_once(
    env: TestEnv, task: str, given: dict[str, Any], why: str
) -> None:
    job, _ = start(env, "segmentsPerSecondMax: 1,")
    before = env.client.replica()
    with pytest.raises(UserError, match=why):
        env.client.set_options(job, task, given)
    assert env.client.replica().run(job).options == before.run(job).options
    env.client.kill(job)
    with pytest.raises(UserError, match=f"job {job} was killed or has failed: only"):
        env.client.set_options(job, "read", {"maxPending": 5})


def test_a_job_that_nobody_knows_is_told(env: TestEnv) -> None:
    with pytest.raises(UserError, match="there is no job nonsense"):
        api.set_options(env.settings, JobId("nonsense"), "read", {"maxPending": 5})
