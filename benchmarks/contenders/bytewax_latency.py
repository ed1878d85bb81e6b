"""The source and sink of `latency.py` on Bytewax, one worker, one process."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bytewax.operators as op
from bench_probe import StampingReader, arrive, same, seen
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

PERIOD = timedelta(milliseconds=5)


class Stamps(StatelessSourcePartition):
    def __init__(self):
        self.reader = StampingReader(0, int(os.environ["BENCH_SEGMENTS"]))

    def next_batch(self):
        if self.reader.exhausted():
            raise StopIteration
        return self.reader.read(100)

    def next_awake(self):
        return datetime.now(UTC) + PERIOD


class Source(DynamicSource):
    def build(self, step_id, worker_index, worker_count):
        return Stamps()


class Arrivals(StatelessSinkPartition):
    def write_batch(self, items):
        arrive(items)

    def close(self):
        Path(os.environ["BENCH_OUT"]).write_text(json.dumps(seen.latencies_ns))


class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Arrivals()


flow = Dataflow("latency")
stream = op.input("read", flow, Source())
stream = op.map("work", stream, same)
op.output("sink", stream, Sink())
