"""A real Kafka of one node for tests, run by the Java that the project has anyway."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.patience import WAIT_S
from tests.support.servers import kafka_jars
from tests.support.servers.ports import free_ports

from onyx.base.parent import end_with_parent
from onyx.java import find_java

JAVA_MIN = 17
REQUEST_TIMEOUT_S = 20.0
MESSAGE_BYTES_MAX = 1_048_576
USER, PASSWORD = "onyx", "not-to-be-seen"
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
_FAST = {
    "group.initial.rebalance.delay.ms": 0,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
}
"""One that was killed is taken back after the first of these."""
_ONE_NODE = dict.fromkeys(
    (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "offsets.topic.num.partitions",
        "transaction.state.log.num.partitions",
    ),
    1,
)


class KafkaBroker:
    """A running broker. `address` takes anybody, `secure_address` only a user with a password."""

    def __init__(self, folder: Path) -> None:
        """Skips the test when Kafka has not been fetched."""
        if not kafka_jars.folder().exists():
            pytest.skip("Kafka has not been fetched: make kafka")
        self._folder = folder
        self._ports = free_ports(3)
        self.address = f"127.0.0.1:{self._ports[0]}"
        self.secure_address = f"127.0.0.1:{self._ports[1]}"
        self._properties = folder / "server.properties"
        self._properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self._settings().items())
        )
        format_storage = ("format", "-t", _CLUSTER_ID, "-c", self._properties, "--standalone")
        with open(folder / "format.log", "wb") as log:
            subprocess.run(
                [*self._java(), "kafka.tools.StorageTool", *format_storage],
                stdout=log, stderr=log, check=True,
            )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        self._warm_up()

    def start(self) -> None:
        """Start it, on the same ports and data as before, and wait until it serves."""
        assert self._process is None
        with open(self._folder / "kafka.log", "ab") as log:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", self._properties],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent(),
            )
        ends_s = time.monotonic() + WAIT_S
        while not self._serves():
            if time.monotonic() > ends_s or self._process.poll() is not None:
                self.kill()
                raise OSError(f"Kafka did not start: {self._folder / 'kafka.log'}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL; harmless when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # --- what tests do with it -----------------------------------------------------------------

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """A new topic; settings with `_` for `.`. Its name."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = self.admin
        made = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        made[topic].result(REQUEST_TIMEOUT_S)
        return topic

    def produce(
        self, topic: str, values: Sequence[Any], partition: int = 0, **message: Any
    ) -> None:
        """Messages to a partition: text or bytes as they are, other values as JSON."""
        producer = Producer({"bootstrap.servers": self.address})
        for value in values:
            data = value if isinstance(value, str | bytes | None) else json.dumps(value)
            producer.produce(topic, data, partition=partition, **message)
        assert producer.flush(REQUEST_TIMEOUT_S) == 0

    @contextlib.contextmanager
    def transaction(self, id: str) -> Iterator[Producer]:
        """Committed at the end of the block; aborted if that raises KeyboardInterrupt."""
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": id})
        producer.init_transactions(REQUEST_TIMEOUT_S)
        producer.begin_transaction()
        try:
            yield producer
        except KeyboardInterrupt:
            producer.abort_transaction(REQUEST_TIMEOUT_S)
        else:
            producer.commit_transaction(REQUEST_TIMEOUT_S)

    def messages(self, topic: str) -> list[Any]:
        """All that is committed, partition by partition, as confluent-kafka gives it."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "tests",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        partitions = consumer.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic].partitions
        found: list[Any] = []
        for partition in sorted(partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                message = consumer.poll(REQUEST_TIMEOUT_S)
                assert message is not None, f"{topic} cannot be read to its end"
                if message.error() is not None:
                    break
                found.append(message)
        consumer.close()
        return found

    def rows(self, topic: str) -> list[Any]:
        """The values of `messages`, of JSON."""
        return [json.loads(message.value()) for message in self.messages(topic)]

    def await_group(self, group: str, topic: str, offsets: Sequence[int]) -> None:
        """Wait until a group has committed these offsets, one a partition."""
        wanted = [TopicPartition(topic, number) for number in range(len(offsets))]
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        found: list[int] = []
        ends_s = time.monotonic() + WAIT_S
        while found != list(offsets) and time.monotonic() < ends_s:
            found = [each.offset for each in consumer.committed(wanted, REQUEST_TIMEOUT_S)]
            time.sleep(0.05)
        consumer.close()
        assert found == list(offsets), f"group {group} has {found}"

    def reset_group(self, group: str, topic: str, offsets: Sequence[int]) -> None:
        """Commit other offsets, one a partition, as somebody else may."""
        wanted = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()

    @contextlib.contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """Somebody else reads the topic in a group."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        consumer.subscribe([topic])
        ends_s = time.monotonic() + WAIT_S
        while not consumer.assignment():
            assert time.monotonic() < ends_s, f"group {group} takes nobody"
            consumer.poll(0.1)
        try:
            yield
        finally:
            consumer.close()

    # --- the process ---------------------------------------------------------------------------

    def _java(self) -> list[Any]:
        jars = f"{kafka_jars.folder()}/*"
        return [find_java(JAVA_MIN).executable, *_JVM, "-cp", jars]

    def _serves(self) -> bool:
        """It listens before it can serve: the controller says when."""
        try:
            socket.create_connection(("127.0.0.1", self._ports[0]), timeout=1).close()
            brokers = self.admin.list_topics(timeout=2).brokers
        except Exception:
            return False
        return bool(brokers)

    def _warm_up(self) -> None:
        """The topics of the broker's own are made when they are first needed."""
        topic = self.create("warm-up")
        with self.transaction("warm-up") as producer:
            producer.produce(topic, b"")
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "warm-up"})
        ends_s = time.monotonic() + WAIT_S
        while True:
            try:
                consumer.committed([TopicPartition(topic, 0)], timeout=REQUEST_TIMEOUT_S)
                break
            except KafkaException:
                if time.monotonic() > ends_s:
                    raise
                time.sleep(0.1)
        consumer.close()

    def _settings(self) -> Mapping[str, Any]:
        plain, secure, controller = self._ports
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secure},"
            f"CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{login} user_{USER}="{PASSWORD}";'
            ),
            "log.dirs": self._folder / "data",
            "auto.create.topics.enable": "false",
            "message.max.bytes": MESSAGE_BYTES_MAX,
            **_ONE_NODE,
            **_FAST,
        }
