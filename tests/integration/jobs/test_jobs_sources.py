"""Whole jobs that read live sources and iterators, in a cluster in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.jobs import live_sources
from tests.support.jobs.live_sources import MemoryQueue
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, taken, until
from tests.support.patience import WAIT_S

from onyx.plugins.channel import Channel
from onyx.settings import Settings, TelemetrySettings
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
SOURCES = "tests.support.jobs.live_sources"


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    settings = Settings(telemetry=TelemetrySettings(job_stalled_after_s=1.0))
    with with_test_env(6, modules=[FUNCTIONS, SOURCES], settings=settings) as env:
        yield env


@pytest.fixture(autouse=True)
def sources() -> None:
    live_sources.cursors.clear()
    live_sources.more.clear()
    live_sources.away.clear()


def job(
    target: Channel,
    plugin: str,
    options: str,
    guarantee: str = "at-least-once",
    upgrade: str = "",
    arrow: bool = False,
) -> Any:
    form = "batchFormat: arrow, " if arrow else ""
    made = manifest(f"""
        guarantee: {guarantee}
        workflow: [[read, write]]
        catalog:
          - {{name: read, type: input, plugin: {plugin}, batchSize: 10, {form}
              options: {{{options}}}}}
          - {{name: write, type: output, plugin: channel, batchSize: 10,
              options: {{channel: {target.name}}}}}
    """)
    return made if not upgrade else made | {"spec": made["spec"] | {"upgrade": {"from": upgrade}}}


def come(target: Channel, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        segments = target.take(timeout_s=WAIT_S)
        assert segments, f"nothing came after {len(found)}"
        found += [segment["n"] for segment in segments]
    return sorted(found)


@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
def test_a_job_ends_with_its_iterator(env: TestEnv, guarantee: str, arrow: bool) -> None:
    live_sources.more.set()
    target = channel()
    options = f"fn: '{SOURCES}:counted'"
    status = env.run(job(target, "iterator", options, guarantee, arrow=arrow))
    assert status.state == "completed", status
    assert sorted(segment["n"] for segment in taken(target)) == list(range(200))


def test_an_iterator_goes_on_behind_its_cursor_in_an_upgraded_job(env: TestEnv) -> None:
    old, new = channel(), channel()
    options = f"fn: '{SOURCES}:counted'"
    first = env.submit(job(old, "iterator", options))
    assert come(old, 100) == list(range(100))
    env.client.kill(first)
    until(env, lambda replica: first in replica.killed_jobs)
    live_sources.more.set()
    second = env.submit(job(new, "iterator", options, upgrade=first))
    env.client.wait(second, WAIT_S)
    found = {segment["n"] for segment in taken(new)}
    assert found >= set(range(100, 200))
    # A task that was killed may have read what came at that moment into its journal.
    assert live_sources.cursors in ([None, {"next": 100}], [None, {"next": 200}])


def test_a_queue_hears_of_what_is_in_the_journal(env: TestEnv) -> None:
    queue = live_sources.queues["acked"] = MemoryQueue(list(range(50)))
    target = channel()
    options = f"fn: '{SOURCES}:queue', settings: {{name: acked}}"
    running = env.submit(job(target, "source", options))
    assert come(target, 50) == list(range(50))
    queue.waiting += range(50, 60)
    assert come(target, 10) == list(range(50, 60))
    env.client.drain(running)
    env.client.wait(running, WAIT_S)
    assert env.client.status(running).state == "completed"
    assert sorted(queue.acked) == list(range(60))


def test_a_source_that_is_gone_is_shown_and_waited_for(env: TestEnv) -> None:
    live_sources.away.set()
    target = channel()
    options = f"fn: '{SOURCES}:counted'"
    running = env.submit(job(target, "iterator", options))
    deadline_s = time.monotonic() + WAIT_S
    while "gone out for lunch" not in (
        said := str(env.client.stalls(env.client.replica(), running))
    ):
        assert time.monotonic() < deadline_s, said
        time.sleep(0.05)
    live_sources.away.clear()
    live_sources.more.set()
    env.client.wait(running, WAIT_S)
    assert sorted(segment["n"] for segment in taken(target)) == list(range(200))
