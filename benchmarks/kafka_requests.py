"""Requests by way of Kafka and Bytewax, for comparison with `requests.py`.

A client produces to a topic, a flow of Bytewax in one process reads it, applies the function of the
job and produces to a second topic, and the client waits there for its own messages. That is what
one builds who has no answers: it is at-least-once, and the topics are forced to disk only if they
are created so (`flush.messages`), as they are here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
from benchmarks.peers import CODE
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.servers import kafka_jars
from tests.support.servers.kafka_broker import KafkaBroker

START_TIMEOUT_S = 60.0
LATENCY = {"linger.ms": 0, "acks": "all"}


class KafkaRequests:
    """Sends requests and finds their answers. Not thread-safe."""

    def __init__(self, address: str) -> None:
        self._producer = Producer({"bootstrap.servers": address, **LATENCY})
        self._consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "client", "fetch.wait.max.ms": 1}
        )
        self._consumer.assign([TopicPartition("answers", 0, 0)])
        self._open: dict[bytes, tuple[Future[None], int]] = {}
        """Requests by key, with the number of their segments that are not answered."""
        self._lock = threading.Lock()
        self._count = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, segments: list[dict[str, Any]]) -> Future[None]:
        """Answered when all segments of the request are in the topic of answers."""
        future: Future[None] = Future()
        self._count += 1
        key = str(self._count).encode()
        with self._lock:
            self._open[key] = future, len(segments)
        for each in segments:
            self._producer.produce("requests", json.dumps(each), key)
        self._producer.poll(0)
        return future

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(1_000, 0.001):
                self._answered(message.key() or b"")

    def _answered(self, key: bytes) -> None:
        with self._lock:
            future, left = self._open[key]
            if left > 1:
                self._open[key] = future, left - 1
                return
            del self._open[key]
        future.set_result(None)


def possible() -> bool:
    """Whether Kafka and Bytewax are there."""
    return kafka_jars.folder().exists() and importlib.util.find_spec("bytewax") is not None


@contextlib.contextmanager
def running() -> Iterator[tuple[KafkaRequests, Callable[[], float]]]:
    """The broker, the flow and a client; and what gives the CPU seconds of broker and flow."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        broker = KafkaBroker(Path(name))
        flow = None
        try:
            for topic in ("requests", "answers"):
                broker.create(topic, flush_messages="1")
            environment = {**CODE, "BENCH_KAFKA": broker.address}
            command = ["env", *(f"{key}={value}" for key, value in environment.items())]
            command += [sys.executable, "-m", "bytewax.run", "bytewax_requests:flow"]
            flow = subprocess.Popen(command)
            client = KafkaRequests(broker.address)
            client.send([{"n": 0, "key": "a"}]).result(START_TIMEOUT_S)
            ours = {each.pid for each in psutil.Process().children(recursive=True)}
            processes = [psutil.Process(pid) for pid in ours]
            yield client, lambda: sum(sum(each.cpu_times()[:2]) for each in processes)
            client.close()
        finally:
            if flow is not None:
                flow.terminate()
                flow.wait(START_TIMEOUT_S)
            broker.kill()
