"""From topic to topic exactly once, while workers are killed and stopped and the broker dies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import Faults, Gate, compare, disturb
from tests.support.servers.cluster import Cluster
from tests.support.servers.kafka_broker import KafkaBroker

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server

MODULE = Path(__file__).with_name("kafka_job.py")
PARTITIONS, MESSAGES, TRANSACTION = 3, 4_000, 500
KILLS = 3


def fill(broker: KafkaBroker, topic: str) -> Counter[int]:
    """Messages in transactions, every other one aborted; the numbers of those that count."""
    numbers = range(PARTITIONS * MESSAGES)
    for first in range(0, len(numbers), TRANSACTION):
        for aborted in (True, False):
            with broker.transaction("fill") as producer:
                for n in numbers[first : first + TRANSACTION]:
                    value = json.dumps({"n": -n if aborted else n})
                    producer.produce(topic, value, partition=n % PARTITIONS)
                if aborted:
                    raise KeyboardInterrupt
    return Counter(numbers)


def manifest(broker: KafkaBroker, source: str, target: str, gate: Path) -> dict[str, Any]:
    place = {"bootstrapServers": broker.address}
    fields = {"partitionField": "p", "offsetField": "o"}
    read = {**place, **fields, "topic": source, "bounded": True, "gate": str(gate)}
    write = {**place, "topic": target, "rollSeconds": 0.3}
    catalog: list[dict[str, Any]] = [
        {"name": "read", "type": "input", "plugin": "kafka_job:gated_kafka", "maxPeers": 2,
         "options": read},
        {"name": "work", "type": "function", "fn": "kafka_job:numbered"},
        {"name": "write", "type": "output", "plugin": "kafka", "maxPeers": 2, "options": write},
    ]  # fmt: skip
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "topics"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["read", "work"], ["work", "write"]],
            "catalog": [{**entry, "batchSize": 100} for entry in catalog],
        },
    }


@pytest.mark.slow
def test_every_message_is_there_once(
    zookeeper: ZooKeeperServer, kafka: KafkaBroker, tmp_path: Path
) -> None:
    source, target = ("kills-in", "kills-out")
    kafka.create(source, partitions=PARTITIONS)
    kafka.create(target, partitions=2)
    wanted = fill(kafka, source)
    gate = Gate(tmp_path / "gate", MESSAGES)

    def restart_broker(fault: int) -> None:
        if fault == KILLS - 1:
            kafka.kill()
            kafka.start()

    faults = Faults(
        kills=KILLS, stops=1, seed=5, rescale=False, pause_max_s=0.5, besides=restart_broker
    )
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        disturb(cluster, manifest(kafka, source, target, tmp_path / "gate"), gate, faults)
    compare(Counter(row["n"] for row in kafka.rows(target)), wanted)


@pytest.mark.slow
def test_a_group_hears_how_far_a_job_is_whoever_dies_or_comes(
    zookeeper: ZooKeeperServer, kafka: KafkaBroker, tmp_path: Path
) -> None:
    """[one worker | a second one comes | the first one dies | the broker, too]"""
    topic, group = kafka.create("kills-group", partitions=2), "kills-group"
    place = {"bootstrapServers": kafka.address, "topic": topic, "consumerGroup": group}
    catalog: list[dict[str, Any]] = [
        {"name": "read", "type": "input", "plugin": "kafka", "maxPeers": 2, "options": place},
        {"name": "write", "type": "output", "plugin": "blackhole"},
    ]
    job = {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "grouped"},
        "spec": {"workflow": [["read", "write"]], "catalog": catalog},
    }

    def more(count: int) -> None:
        for partition in range(2):
            kafka.produce(topic, [{"n": n} for n in range(count)], partition=partition)

    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        (first,) = cluster.start_workers(1, peers=2)
        more(10)
        cluster.submit(job)
        kafka.await_group(group, topic, [10, 10])
        cluster.start_workers(1, peers=2)
        more(5)
        kafka.await_group(group, topic, [15, 15])
        first.kill()
        more(5)
        kafka.await_group(group, topic, [20, 20])
        kafka.kill()
        kafka.start()
        more(5)
        kafka.await_group(group, topic, [25, 25])
