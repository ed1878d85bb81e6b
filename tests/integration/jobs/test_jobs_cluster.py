"""Several jobs, too few peers, kills, repeats and refusals, against a real cluster."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.jobs import job_functions
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, taken, until
from tests.support.patience import WAIT_S

from onyx import api
from onyx.client.statuses import JobStatus
from onyx.errors import JobRefused, ManifestError, UserError
from onyx.ids import JobId
from onyx.log.interface import Origin
from onyx.plugins.channel import Channel
from onyx.replica.command import Entry
from onyx.replica.commands import SignalReady
from onyx.replica.state import Replica
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
PEERS = 6


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(PEERS, modules=[FUNCTIONS]) as env:
        yield env


class Flow:
    """A job that reads one channel and writes another: it runs until the test closes the first."""

    def __init__(self, work: str = "", fn: str = "f:inc", **metadata: Any) -> None:
        self.source, self.target = channel(), channel()
        self.manifest = manifest(_spec(self.source, self.target, fn, work), **metadata)

    def finish(self, env: TestEnv, job: JobId) -> JobStatus:
        self.source.close()
        env.client.wait(job, WAIT_S)
        return env.client.status(job)


def _spec(source: Channel, target: Channel, fn: str, work: str) -> str:
    return f"""
        workflow: [[read, work], [work, write]]
        catalog:
          - {{name: read, type: input, plugin: channel, batchSize: 5, maxPeers: 1,
              options: {{channel: {source.name}}}}}
          - {{name: work, type: function, fn: "{fn}", batchSize: 5, {work}}}
          - {{name: write, type: output, plugin: channel, batchSize: 5, maxPeers: 1,
              options: {{channel: {target.name}}}}}
    """


def allocated(replica: Replica, job: JobId) -> dict[str, int]:
    return {task: len(peers) for task, peers in replica.run(job).allocation.items()}


def test_two_jobs_one_after_the_other(env: TestEnv) -> None:
    for count in (3, 4):
        flow = Flow()
        job = env.submit(flow.manifest)
        flow.source.put(*({"n": n} for n in range(count)))
        assert flow.finish(env, job).state == "completed"
        assert sorted(each["n"] for each in taken(flow.target)) == list(range(1, count + 1))


def test_what_a_job_costs_in_the_log_does_not_grow_with_its_peers(env: TestEnv) -> None:
    flow = Flow()
    before = env.client.replica().version
    job = env.submit(flow.manifest)
    replica = until(env, lambda each: sum(allocated(each, job).values()) == PEERS)
    flow.source.put({"n": 1})
    assert flow.finish(env, job).state == "completed"
    entries = [entry.command for entry in env.client.log.read(before)]
    assert [each.NAME for each in entries] == [
        "submit-job",
        "register-partitions",
        "signal-ready",
        "exhaust-input",
        "seal-output",
    ]
    assert isinstance(entries[2], SignalReady)
    assert [each.peers for each in entries[2].jobs] == [tuple(sorted(replica.peers))]


def test_two_jobs_at_once_share_the_peers_evenly(env: TestEnv) -> None:
    flows = [Flow(), Flow()]
    jobs = [env.submit(flow.manifest) for flow in flows]
    replica = until(env, lambda each: all(len(allocated(each, job)) == 3 for job in jobs))
    assert [sum(allocated(replica, job).values()) for job in jobs] == [3, 3]
    for flow, job in zip(flows, jobs, strict=True):
        flow.source.put({"n": 1})
        assert flow.finish(env, job).state == "completed"
        assert taken(flow.target) == [{"n": 2}]


def test_a_job_alone_takes_all_peers_and_gives_some_to_the_next(env: TestEnv) -> None:
    first, second = Flow(), Flow()
    job = env.submit(first.manifest)
    replica = until(env, lambda each: bool(allocated(each, job)))
    assert allocated(replica, job) == {"read": 1, "work": 4, "write": 1}
    other = env.submit(second.manifest)
    replica = until(env, lambda each: bool(allocated(each, other)))
    assert allocated(replica, job) == {"read": 1, "work": 1, "write": 1}
    first.source.put(*({"n": n} for n in range(50)))
    assert second.finish(env, other).state == "completed"
    assert first.finish(env, job).state == "completed"
    assert {each["n"] for each in taken(first.target)} == set(range(1, 51))


@pytest.mark.parametrize(
    ("work", "peers"), [("maxPeers: 2", 2), ("minPeers: 3", 4), ("nPeers: 3", 3)]
)
def test_min_and_max_peers_of_a_task_are_kept(env: TestEnv, work: str, peers: int) -> None:
    flow = Flow(work)
    job = env.submit(flow.manifest)
    replica = until(env, lambda each: bool(allocated(each, job)))
    assert allocated(replica, job)["work"] == peers
    assert flow.finish(env, job).state == "completed"


def test_the_peers_of_a_job_are_split_by_percentages(env: TestEnv) -> None:
    flow = Flow("percentage: 50")
    spec = flow.manifest["spec"]
    spec["taskScheduler"] = "percentage"
    for task in spec["catalog"]:
        task.pop("maxPeers", None)
    spec["catalog"][0]["percentage"], spec["catalog"][2]["percentage"] = 17, 33
    job = env.submit(flow.manifest)
    replica = until(env, lambda each: bool(allocated(each, job)))
    assert allocated(replica, job) == {"read": 1, "work": 3, "write": 2}
    flow.source.put({"n": 1})
    assert flow.finish(env, job).state == "completed"


def test_a_job_that_needs_more_peers_says_so_and_starts_when_they_come(env: TestEnv) -> None:
    flow = Flow("minPeers: 6")
    job = env.submit(flow.manifest)
    status = env.client.status(job)
    assert status.state == "waiting"
    assert "8" in status.waiting_for
    assert str(PEERS) in status.waiting_for
    more = api.start_peers(2, env.group)
    until(env, lambda each: bool(allocated(each, job)))
    assert env.client.status(job).state == "running"
    flow.source.put({"n": 1})
    assert flow.finish(env, job).state == "completed"
    api.shutdown_peers(more)
    until(env, lambda each: len(each.peers) == PEERS)


def test_a_peer_that_is_taken_back_while_a_job_runs_loses_nothing(env: TestEnv) -> None:
    flow = Flow()
    more = api.start_peers(2, env.group)
    until(env, lambda each: len(each.peers) == PEERS + 2)
    job = env.submit(flow.manifest)
    flow.source.put(*({"n": n} for n in range(100)))
    until(env, lambda each: sum(allocated(each, job).values()) == PEERS + 2)
    api.shutdown_peers(more)
    until(env, lambda each: len(each.peers) == PEERS)
    assert flow.finish(env, job).state == "completed"
    assert {each["n"] for each in taken(flow.target)} == set(range(1, 101))


def test_a_job_can_be_killed_while_it_runs_and_while_it_waits(env: TestEnv) -> None:
    for work in ("", "minPeers: 50"):
        flow = Flow(work)
        job = env.submit(flow.manifest)
        api.kill_job(env.settings, job)
        assert api.await_job_completion(env.settings, job, 30.0) is False
        assert env.client.status(job).state == "killed"
        assert env.client.status(job).exception is None


def test_peers_of_a_killed_job_are_free_for_the_next(env: TestEnv) -> None:
    job_functions.gate.clear()
    stuck = Flow(fn="f:held")
    job = env.submit(stuck.manifest)
    stuck.source.put({"n": 1})
    until(env, lambda each: bool(allocated(each, job)))
    env.client.kill(job)
    job_functions.gate.set()
    flow = Flow()
    after = env.submit(flow.manifest)
    flow.source.put({"n": 1})
    assert flow.finish(env, after).state == "completed"


def test_the_same_job_id_twice_is_one_job(env: TestEnv) -> None:
    flow = Flow(jobId="nightly-1")
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: env.submit(flow.manifest), range(5)))
    assert set(answers) == {"nightly-1"}
    assert [status.id for status in env.client.statuses()].count(JobId("nightly-1")) == 1
    flow.source.put({"n": 1})
    assert flow.finish(env, answers[0]).state == "completed"
    env.submit(flow.manifest)
    assert env.client.status(answers[0]).state == "completed", "it does not run again"
    assert taken(flow.target) == [{"n": 2}]


def test_a_job_id_with_other_content_is_refused(env: TestEnv) -> None:
    flow = Flow(jobId="nightly-2")
    job = env.submit(flow.manifest)
    with pytest.raises(JobRefused, match="nightly-2 exists already with other content"):
        env.submit(Flow(jobId="nightly-2").manifest)
    flow.finish(env, job)


def test_a_job_with_a_window_that_the_window_cannot_have_is_refused_by_name(env: TestEnv) -> None:
    job = Flow().manifest
    job["spec"]["windows"] = [
        {"id": "every", "task": "work", "type": "sliding", "aggregation": "count"}
    ]
    with pytest.raises(ManifestError, match=r"windows\[0\].slide"):
        env.submit(job)


@pytest.mark.parametrize("verb", ["kill", "job", "wait"])
def test_an_unknown_job_is_told_at_once(env: TestEnv, verb: str) -> None:
    with pytest.raises(UserError, match="there is no job nonsense"):
        getattr(env.client, verb)(JobId("nonsense"))


def test_waiting_for_a_job_gives_up_after_the_timeout_and_the_job_goes_on(env: TestEnv) -> None:
    flow = Flow()
    job = env.submit(flow.manifest)
    with pytest.raises(TimeoutError, match=job):
        api.await_job_completion(env.settings, job, 0.01)
    assert flow.finish(env, job).state == "completed"


def test_the_log_can_be_subscribed_to_from_any_position(env: TestEnv) -> None:
    flow = Flow()
    before = env.client.replica().version
    entries: queue.SimpleQueue[Entry | Origin] = queue.SimpleQueue()
    subscription = api.subscribe_to_log(env.settings, entries.put, after=before)
    job = env.submit(flow.manifest)
    assert flow.finish(env, job).state == "completed"
    seen: list[Entry] = []
    while not seen or seen[-1].command.NAME != "seal-output":
        item = entries.get(timeout=30.0)
        assert isinstance(item, Entry)
        seen.append(item)
    api.shutdown_subscription(subscription)
    assert seen[0].command.NAME == "submit-job"
    assert [entry.position for entry in seen] == list(range(before + 1, before + 1 + len(seen)))


def test_nested_values_arrive_as_they_were(env: TestEnv) -> None:
    flow = Flow(fn="f:same")
    job = env.submit(flow.manifest)
    segment = {"n": 1, "nested": {"list": [1, 2.5, {"deep": None}], "text": "\u00e9"}}
    flow.source.put(segment)
    assert flow.finish(env, job).state == "completed"
    assert taken(flow.target) == [segment]
