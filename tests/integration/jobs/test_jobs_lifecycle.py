"""Suspending, resuming and draining jobs against a real cluster in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, taken, until
from tests.support.patience import WAIT_S

from onyx import api
from onyx.errors import UserError
from onyx.ids import NO_POSITION, JobId, Position
from onyx.plugins.channel import Channel
from onyx.replica.commands import COMMANDS
from onyx.settings import HistorySettings, Settings
from onyx.telemetry.metrics import PrometheusGroupMetrics
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
PEERS = 3
VERBS: dict[str, Callable[[Settings, JobId], None]] = {
    "suspended": api.suspend_job,
    "resumed": api.resume_job,
    "drained": api.drain_job,
}


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(PEERS, modules=[FUNCTIONS]) as env:
        yield env


def start(
    env: TestEnv, guarantee: str = "at-least-once", min_peers: int = 1
) -> tuple[JobId, Channel, Channel]:
    """A job that reads one channel, which nobody ever closes, and writes another."""
    source, target = channel(), channel()
    spec = f"""
        guarantee: {guarantee}
        workflow: [[read, work], [work, write]]
        catalog:
          - {{name: read, type: input, plugin: channel, batchSize: 5,
              options: {{channel: {source.name}}}}}
          - {{name: work, type: function, fn: "f:inc", batchSize: 5, minPeers: {min_peers}}}
          - {{name: write, type: output, plugin: channel, batchSize: 5,
              options: {{channel: {target.name}}}}}
    """
    return env.submit(manifest(spec)), source, target


def put(source: Channel, target: Channel, first: int, end: int) -> list[int]:
    """Segments in, and what came out of the first of them."""
    source.put(*({"n": n} for n in range(first, end)))
    return [segment["n"] for segment in target.take(timeout_s=WAIT_S)]


def test_a_job_goes_on_after_a_suspension_where_it_was(env: TestEnv) -> None:
    job, source, target = start(env)
    found = put(source, target, 0, 20)
    assert found
    env.client.suspend(job)
    until(env, lambda replica: not replica.run(job).allocation)
    status = env.client.status(job)
    assert (status.state, status.peers) == ("suspended", 0)
    assert f"onyx resume {job}" in status.waiting_for
    source.put({"n": 20})
    env.client.resume(job)
    source.close()
    assert env.client.wait(job, WAIT_S)
    found += [segment["n"] for segment in taken(target)]
    assert set(found) == set(range(1, 22))


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_a_drained_job_completes_though_its_source_never_ends(env: TestEnv, guarantee: str) -> None:
    job, source, target = start(env, guarantee)
    found = put(source, target, 0, 20)
    api.drain_job(env.settings, job)
    assert env.client.wait(job, WAIT_S)
    found += [segment["n"] for segment in taken(target)]
    assert found == list(range(1, len(found) + 1))
    assert target.closed, "the output is sealed"


def test_a_job_that_never_started_is_drained_at_once(env: TestEnv) -> None:
    job, _, _ = start(env, min_peers=50)
    env.client.drain(job)
    assert env.client.status(job).state == "completed"


def test_a_suspended_job_that_is_drained_completes_when_it_is_resumed(env: TestEnv) -> None:
    job, source, target = start(env)
    put(source, target, 0, 5)
    env.client.suspend(job)
    env.client.drain(job)
    env.client.drain(job)
    status = env.client.status(job)
    assert (status.state, "finish what is pending" in status.waiting_for) == ("suspended", True)
    env.client.resume(job)
    assert env.client.wait(job, WAIT_S)


@pytest.mark.parametrize("verb", VERBS)
def test_a_job_that_has_ended_is_left_alone_and_says_so(env: TestEnv, verb: str) -> None:
    for end in ("has completed", "was killed or has failed"):
        job, source, _ = start(env)
        if end != "has completed":
            env.client.kill(job)
        source.close()
        env.client.wait(job, WAIT_S)
        with pytest.raises(UserError, match=f"{job} {end}: only a job that runs can be {verb}"):
            VERBS[verb](env.settings, job)


@pytest.mark.parametrize("verb", VERBS)
def test_a_job_that_nobody_knows_is_told(env: TestEnv, verb: str) -> None:
    with pytest.raises(UserError, match="there is no job nonsense"):
        VERBS[verb](env.settings, JobId("nonsense"))


def test_garbage_is_collected_while_a_job_runs_and_ids_are_free_again(env: TestEnv) -> None:
    running, source, target = start(env)
    found = put(source, target, 0, 20)
    spec = """
        workflow: [[read, write]]
        metadata: {jobId: again}
        catalog:
          - {name: read, type: input, plugin: sequence, batchSize: 5, options: {segments: [{n: 1}]}}
          - {name: write, type: output, plugin: channel, batchSize: 5, options: {channel: CHANNEL}}
    """
    for _ in range(2):
        once = channel()
        env.client.suspend(running)
        job = env.submit(manifest(spec.replace("CHANNEL", once.name)))
        assert env.client.wait(job, WAIT_S)
        assert taken(once) == [{"n": 1}]
        env.client.resume(running)
        assert job in api.gc(env.settings).jobs
        assert [status.id for status in env.client.statuses()] == [running]
    source.put({"n": 20})
    source.close()
    assert env.client.wait(running, WAIT_S)
    found += [segment["n"] for segment in taken(target)]
    assert set(found) == set(range(1, 22))


def test_workers_collect_what_has_ended_without_being_asked(tmp_path: Path) -> None:
    history = HistorySettings(
        jobs_max=1, entries_max=20, interval_s=0.2, chunk_age_s=0, archive=str(tmp_path)
    )
    text = """
        workflow: [[read, write]]
        metadata: {jobId: JOB}
        catalog:
          - {name: read, type: input, plugin: sequence, batchSize: 5, options: {segments: [{n: 1}]}}
          - {name: write, type: output, plugin: blackhole, batchSize: 5}
    """
    jobs = [manifest(text.replace("JOB", f"job-{number}")) for number in range(6)]
    settings, metrics = Settings(history=history), PrometheusGroupMetrics(COMMANDS, "1")
    with with_test_env(PEERS, modules=[FUNCTIONS], settings=settings, metrics=metrics) as env:
        for job in jobs:
            assert env.client.wait(env.submit(job), 30.0)
        until(env, lambda replica: len(replica.records) == 1 and len(replica.completed_before) == 5)
        while env.client.log.origin().position < 0:  # the suite has a time limit
            time.sleep(0.05)
        for job in jobs[:-1]:
            assert env.client.wait(env.submit(job)), "it does not run again"
        assert env.client.replica().jobs == ()
        entries = list(env.client.entries(NO_POSITION))
        assert [entry.position for entry in entries] == list(range(len(entries)))
        assert env.client.replica(Position(3)).version == 3
    stored = metrics.registry.get_sample_value("onyx_log_stored_bytes")
    assert stored, "nobody has said how much the tenancy holds"
    assert stored < (metrics.registry.get_sample_value("onyx_log_stored_bytes_max") or 0)
