"""The job of `requests.py` on Bytewax: a topic of requests, one function, a topic of answers."""

from __future__ import annotations

import json
import os
from typing import Any

import bytewax.operators as op
from bench_probe import same
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow, Stream

BROKERS = [os.environ["BENCH_KAFKA"]]
PRODUCER = {"acks": "all", "linger.ms": "0"}
CONSUMER = {"fetch.wait.max.ms": "1"}


def work(message: Any) -> Any:
    segment = same(json.loads(message.value))
    return KafkaSinkMessage(message.key, json.dumps(segment).encode())


flow = Dataflow("requests")
stream = op.input("read", flow, KafkaSource(BROKERS, ["requests"], add_config=CONSUMER))
answers: Stream[Any] = op.map("work", stream, work)
op.output("write", answers, KafkaSink(BROKERS, "answers", add_config=PRODUCER))
