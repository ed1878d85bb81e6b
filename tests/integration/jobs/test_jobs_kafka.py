"""Whole jobs between topics of a real Kafka, in a cluster in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, until
from tests.support.patience import WAIT_S
from tests.support.servers.kafka_broker import KafkaBroker
from tests.support.spark.session import MASTER

from onyx.peer.work import measuring
from onyx.plugins.channel import Channel
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(6, modules=[FUNCTIONS]) as env:
        yield env


def numbers(first: int, end: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(first, end)]


def come(target: Channel, count: int) -> list[int]:
    """The next so many numbers that a job writes."""
    found: list[int] = []
    while len(found) < count:
        more = target.take(timeout_s=WAIT_S)
        assert more, f"nothing came after {found}"
        found += [segment["n"] for segment in more]
    return sorted(found)


def between_topics(broker: KafkaBroker, source: str, target: str, guarantee: str) -> dict[str, Any]:
    return manifest(f"""
        guarantee: {guarantee}
        workflow: [[read, work], [work, write]]
        catalog:
          - {{name: read, type: input, plugin: kafka, batchSize: 100, maxPeers: 2,
              options: {{bootstrapServers: "{broker.address}", topic: {source}, bounded: true}}}}
          - {{name: work, type: function, fn: "f:inc", batchSize: 100}}
          - {{name: write, type: output, plugin: kafka, batchSize: 100, maxPeers: 2,
              options: {{bootstrapServers: "{broker.address}", topic: {target}, keyField: n}}}}
    """)


@pytest.mark.parametrize(
    "guarantee",
    [pytest.param("at-most-once", marks=pytest.mark.slow), "at-least-once", "exactly-once"],
)
def test_a_job_goes_from_topic_to_topic(env: TestEnv, kafka: KafkaBroker, guarantee: str) -> None:
    source = kafka.create(f"job-{guarantee}-in", partitions=3)
    target = kafka.create(f"job-{guarantee}-out", partitions=2)
    for partition in range(3):
        first = partition * 500
        kafka.produce(source, numbers(first, first + 500), partition=partition)
    status = env.run(between_topics(kafka, source, target, guarantee))
    assert status.state == "completed", status
    messages = kafka.messages(target)
    assert sorted(int(message.key()) for message in messages) == list(range(1, 1_501))


def test_a_job_without_end_gives_what_comes(env: TestEnv, kafka: KafkaBroker) -> None:
    topic = kafka.create("job-endless", partitions=2)
    kafka.produce(topic, numbers(0, 10))
    target = channel()
    job = env.submit(manifest(f"""
        workflow: [[read, write]]
        catalog:
          - {{name: read, type: input, plugin: kafka, batchSize: 10,
              options: {{bootstrapServers: "{kafka.address}", topic: {topic}}}}}
          - {{name: write, type: output, plugin: channel, batchSize: 10,
              options: {{channel: {target.name}}}}}
    """))  # fmt: skip
    assert come(target, 10) == list(range(10))
    kafka.produce(topic, numbers(10, 15), partition=1)
    assert come(target, 5) == list(range(10, 15))
    env.client.kill(job)


def test_an_upgrade_goes_on_where_the_old_job_stopped(env: TestEnv, kafka: KafkaBroker) -> None:
    """[end | something, KILL, 3 more, the next job]: anew, it would not read these."""
    topic = kafka.create("job-upgrade")

    def reading(target: Channel, more: str) -> dict[str, Any]:
        return manifest(f"""
            {more}
            workflow: [[read, write]]
            catalog:
              - {{name: read, type: input, plugin: kafka, batchSize: 10, options:
                  {{bootstrapServers: "{kafka.address}", topic: {topic}, startFrom: end}}}}
              - {{name: write, type: output, plugin: channel, batchSize: 10,
                  options: {{channel: {target.name}}}}}
        """)

    old, new = channel(), channel()
    job = env.submit(reading(old, ""))
    produced = 0
    while not old.take(timeout_s=0.2):  # it has not found its start yet
        kafka.produce(topic, numbers(produced, produced + 1))
        produced += 1
    env.client.kill(job)
    until(env, lambda replica: job in replica.killed_jobs)
    more = numbers(produced, produced + 3)
    kafka.produce(topic, more)
    upgraded = env.submit(reading(new, f"upgrade: {{from: {job}}}"))
    found = come(new, 3)
    while not {segment["n"] for segment in more} <= set(found):
        found += come(new, 1)
    env.client.kill(upgraded)


@pytest.fixture
def asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are asked how far they are, and tell their group, without a rest."""
    monkeypatch.setattr(measuring, "LAG_S", 0.0)
    monkeypatch.setattr(measuring, "LOOK_S", 0.1)


@pytest.mark.usefixtures("asked_often")
@pytest.mark.short(1)
@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_a_group_hears_how_far_a_job_is_and_no_job_begins_there(
    env: TestEnv, kafka: KafkaBroker, form: str
) -> None:
    """[job | rest, resume | KILL, 5 more, the next job in its place | KILL, another one: anew]"""
    topic = kafka.create(f"job-group-{form}", partitions=2)
    group = f"shop-{form}"

    def reading(target: Channel, more: str = "") -> dict[str, Any]:
        return manifest(f"""
            {more}
            workflow: [[read, write]]
            catalog:
              - {{name: read, type: input, plugin: kafka, batchSize: 10, batchFormat: {form},
                  maxPeers: 2, options: {{bootstrapServers: "{kafka.address}", topic: {topic},
                  consumerGroup: {group}}}}}
              - {{name: write, type: output, plugin: channel, batchSize: 10,
                  options: {{channel: {target.name}}}}}
        """)

    kafka.produce(topic, numbers(0, 10))
    kafka.produce(topic, numbers(10, 30), partition=1)
    first, second, third = channel(), channel(), channel()
    job = env.submit(reading(first))
    assert come(first, 30) == list(range(30))
    kafka.await_group(group, topic, [10, 20])
    env.client.suspend(job)
    until(env, lambda replica: not replica.run(job).allocation)
    kafka.reset_group(group, topic, [0, 99])  # nobody begins there
    env.client.resume(job)
    kafka.await_group(group, topic, [10, 20])
    env.client.kill(job)
    until(env, lambda replica: job in replica.killed_jobs)
    kafka.produce(topic, numbers(30, 35))
    upgraded = env.submit(reading(second, f"upgrade: {{from: {job}}}"))
    assert come(second, 5)[-5:] == list(range(30, 35))
    kafka.await_group(group, topic, [15, 20])
    env.client.kill(upgraded)
    until(env, lambda replica: upgraded in replica.killed_jobs)
    again = env.submit(reading(third))
    assert come(third, 35) == list(range(35))
    env.client.kill(again)


@pytest.mark.slow
@pytest.mark.usefixtures("asked_often")
def test_a_group_hears_how_far_a_job_on_spark_is(
    env: TestEnv, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.create("job-group-spark", partitions=2)
    kafka.produce(topic, numbers(0, 10))
    job = env.submit(manifest(f"""
        engine: spark
        spark: {{master: "{MASTER}"}}
        workflow: [[read, write]]
        catalog:
          - {{name: read, type: input, plugin: kafka, options:
              {{bootstrapServers: "{kafka.address}", topic: {topic}, consumerGroup: on-spark}}}}
          - {{name: write, type: output, plugin: files, options: {{path: "{tmp_path}"}}}}
    """))  # fmt: skip
    kafka.await_group("on-spark", topic, [10, 0])
    kafka.produce(topic, numbers(10, 13), partition=1)
    kafka.await_group("on-spark", topic, [10, 3])
    env.client.kill(job)
    until(env, lambda replica: job in replica.killed_jobs)


@pytest.mark.usefixtures("asked_often")
def test_a_group_of_another_program_holds_no_job_up(
    env: TestEnv, kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.create("job-group-taken")
    kafka.produce(topic, numbers(0, 3))
    with kafka.member("taken", topic):
        target = channel()
        job = env.submit(manifest(f"""
            workflow: [[read, write]]
            catalog:
              - {{name: read, type: input, plugin: kafka, batchSize: 10, options:
                  {{bootstrapServers: "{kafka.address}", topic: {topic}, consumerGroup: taken}}}}
              - {{name: write, type: output, plugin: channel, batchSize: 10,
                  options: {{channel: {target.name}}}}}
        """))  # fmt: skip
        assert come(target, 3) == [0, 1, 2]
        kafka.produce(topic, numbers(3, 5))
        assert come(target, 2) == [3, 4]
        ends_s = time.monotonic() + WAIT_S
        while "consumerGroup 'taken'" not in caplog.text:
            assert time.monotonic() < ends_s, "nobody says that the group is taken"
            time.sleep(0.05)
        env.client.kill(job)


def test_a_topic_that_is_not_there_kills_the_job(env: TestEnv, kafka: KafkaBroker) -> None:
    status = env.run(between_topics(kafka, "job-none", "job-none", "exactly-once"))
    assert status.state == "failed"
    assert f"{kafka.address} has no topic 'job-none'; create it first" in str(status.exception)
