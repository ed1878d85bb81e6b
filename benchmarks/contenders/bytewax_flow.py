"""Workload a on Bytewax, one worker. `BENCH_FOLDER=... python -m bytewax.run bytewax_flow:flow`"""

import os
from itertools import islice
from pathlib import Path

import bytewax.operators as op
import msgspec
from bench_tasks import even, inc
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

BATCH = 1000
FOLDER = Path(os.environ["BENCH_FOLDER"])


class Lines(StatefulSourcePartition):
    """One file, with the number of the next line as its state."""

    def __init__(self, path, start):
        self.file = path.open("rb")
        self.next = sum(1 for _ in islice(self.file, start))

    def next_batch(self):
        lines = list(islice(self.file, BATCH))
        if not lines:
            raise StopIteration
        self.next += len(lines)
        return lines

    def snapshot(self):
        return self.next

    def close(self):
        self.file.close()


class Folder(FixedPartitionedSource):
    def list_parts(self):
        return sorted(path.name for path in FOLDER.glob("*.jsonl"))

    def build_part(self, step_id, for_part, resume_state):
        return Lines(FOLDER / for_part, resume_state or 0)


class Counter(StatelessSinkPartition):
    def __init__(self):
        self.count = self.total = 0

    def write_batch(self, items):
        self.count += len(items)
        self.total += sum([segment["n"] for segment in items])

    def close(self):
        print("ANSWER", self.count, self.total, flush=True)


class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Counter()


flow = Dataflow("workload_a")
stream = op.input("read", flow, Folder())
stream = op.map("parse", stream, msgspec.json.Decoder(dict).decode)
stream = op.map("inc", stream, inc)
stream = op.filter("even", stream, even)
op.output("sink", stream, Sink())
