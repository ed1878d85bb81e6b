"""A colocated job in two processes: two groups of this one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, taken, until
from tests.support.log.invariants import tasks_on
from tests.support.patience import WAIT_S

from onyx import api
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(4, modules=[FUNCTIONS]) as env:
        elsewhere = api.start_peer_group(env.settings)
        try:
            api.start_peers(5, elsewhere)
            until(env, lambda replica: len(replica.peers) == 9)
            yield env
        finally:
            api.shutdown_peer_group(elsewhere)


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_every_process_has_all_tasks_and_the_job_completes(env: TestEnv, guarantee: str) -> None:
    source, target = channel(), channel()
    spec = f"""
        guarantee: {guarantee}
        taskScheduler: colocated
        workflow: [[read, work], [more, work], [work, write]]
        catalog:
          - {{name: read, type: input, plugin: sequence, batchSize: 2,
              options: {{partitions: 5, segments: {[{"n": n} for n in range(50)]}}}}}
          - {{name: more, type: input, plugin: channel, batchSize: 2,
              options: {{channel: {source.name}}}}}
          - {{name: work, type: function, fn: "f:inc", batchSize: 2}}
          - {{name: write, type: output, plugin: channel, batchSize: 2,
              options: {{channel: {target.name}}}}}
    """
    job = env.submit(manifest(spec.replace("'n'", '"n"')))
    replica = until(env, lambda each: each.run(job).allocation)
    assert tasks_on(replica, job) == {
        group: dict.fromkeys(("read", "more", "work", "write"), 1) for group in replica.groups
    }
    source.put({"n": 100})
    source.close()
    assert env.client.wait(job, WAIT_S)
    assert sorted(each["n"] for each in taken(target)) == [*range(1, 51), 101]
