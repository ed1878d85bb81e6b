"""Jobs that keep what they take: others follow it, and a new version begins in it again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.jobs.chaos_files import wait_until
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, taken, until
from tests.support.patience import WAIT_S

from onyx import api
from onyx.client.appender import Appender
from onyx.client.appending import addresses_of
from onyx.ids import JobId
from onyx.log import documents
from onyx.plugins.channel import Channel
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
_numbers = itertools.count()


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("onyx.journal.journal.COLLECTED_CHUNKS_MIN", 2)
        patched.setattr("onyx.plugins.journalled.partitions.COLLECT_INTERVAL_S", 0.1)
        with with_test_env(2, modules=[FUNCTIONS]) as env:
            group = api.start_peer_group(env.settings)
            api.start_peers(4, group)
            yield env
            api.shutdown_peer_group(group)


def taking(env: TestEnv, name: str, options: str, upgrade: str = "") -> tuple[JobId, Channel]:
    """A job that takes requests in two partitions, and what it gives."""
    target = channel()
    spec = f"""
        workflow: [[in, out]]
        catalog:
          - {{name: in, type: input, plugin: requests, maxPeers: 2,
             options: {{partitions: 2, keepDays: 1{options}}}}}
          - {{name: out, type: output, plugin: channel, maxPeers: 1,
             options: {{channel: {target.name}}}}}
        {upgrade}
    """
    return env.submit(manifest(spec, name)), target


def following(env: TestEnv, name: str) -> tuple[JobId, Channel]:
    target = channel()
    spec = f"""
        workflow: [[follow, out]]
        catalog:
          - {{name: follow, type: input, plugin: job,
             options: {{job: {name}, task: in, pollSeconds: 0.1}}}}
          - {{name: out, type: output, plugin: channel, options: {{channel: {target.name}}}}}
    """
    return env.submit(manifest(spec, f"after-{name}")), target


def append(env: TestEnv, job: JobId, first: int, end: int) -> None:
    until(env, lambda replica: bool(replica.run(job).ready))
    with Appender(addresses_of(env.client.replica())[0], job, "in") as appender:
        for n in range(first, end):
            appender.append({"n": n}, timeout_s=WAIT_S)


def stored(env: TestEnv, job: JobId) -> int:
    """How many segments of a job are processed, as far as that is stored."""
    log, folder = env.client.log, documents.frontiers(job)
    found = [log.get_document(f"{folder}/{name}") for name in log.list_documents(folder)]
    return sum(json.loads(each.data)["position"] for each in found if each is not None)


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["n"] for row in rows)


@pytest.mark.slow
def test_a_job_follows_what_another_one_takes_over_its_upgrade_to_its_end(env: TestEnv) -> None:
    name = f"depot-{next(_numbers)}"
    follower, followed = following(env, name)  # before there is anything to follow
    first, _ = taking(env, name, "")
    append(env, first, 0, 20)
    second, _ = taking(env, name, "", f"upgrade: {{from: {first}}}")
    append(env, second, 20, 30)
    env.client.drain(second)
    assert env.client.wait(second, WAIT_S)
    assert env.client.wait(follower, WAIT_S)
    assert numbers(taken(followed)) == list(range(30))
    late, again = following(env, str(second))
    assert env.client.wait(late, WAIT_S)
    assert numbers(taken(again)) == list(range(30))


@pytest.mark.parametrize(
    ("start", "first"), [("beginning", 0), ("{recordsAgo: 0}", 20), ("end", 20)]
)
def test_a_new_version_begins_again_in_what_was_kept(env: TestEnv, start: str, first: int) -> None:
    name = f"depot-{next(_numbers)}"
    old, target = taking(env, name, "")
    append(env, old, 0, 20)
    assert numbers(taken(target)) == list(range(20))
    wait_until(lambda: stored(env, old) == 20, "everything is stored as processed")
    upgrade = f"upgrade: {{from: {old}, tasks: {{in: initialize}}}}"
    new, target = taking(env, name, f", startFrom: {start}", upgrade)
    append(env, new, 20, 25)
    env.client.drain(new)
    assert env.client.wait(new, WAIT_S)
    assert numbers(taken(target)) == list(range(first, 25))
