"""The source and sink of `latency.py` on Bytewax, one worker, one process."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bench_probe import StampingReader, arrive, same, seen
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

PERIOD = timedelta(milliseconds=5)


class Stamps(StatelessSourcePartition[dict[str, Any]]):
    def __init__(self) -> None:
        self.reader = StampingReader(0, int(os.environ["BENCH_SEGMENTS"]))

    def next_batch(self) -> list[dict[str, Any]]:
        if self.reader.exhausted():
            raise StopIteration
        segments: list[dict[str, Any]] = self.reader.read(100)
        return segments

    def next_awake(self) -> datetime:
        return datetime.now(UTC) + PERIOD


class Source(DynamicSource[dict[str, Any]]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Stamps:
        return Stamps()


class Arrivals(StatelessSinkPartition[dict[str, Any]]):
    def write_batch(self, items: list[Any]) -> None:
        arrive(items)

    def close(self) -> None:
        Path(os.environ["BENCH_OUT"]).write_text(json.dumps(seen.latencies_ns))


class Sink(DynamicSink[dict[str, Any]]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Arrivals:
        return Arrivals()


flow = Dataflow("latency")
stream = op.input("read", flow, Source())
stream = op.map("work", stream, same)
op.output("sink", stream, Sink())
