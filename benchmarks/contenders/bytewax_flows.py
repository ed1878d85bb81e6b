"""Workloads on Bytewax. `BENCH_FOLDER=... python -m bytewax.run "bytewax_flows:segments()"`

Two processes: `python -m bytewax.testing "bytewax_flows:running_count()" -p 2`. Each worker prints
its share of the answer.
"""

import os
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import bytewax.operators as op
import msgspec
from bench_tasks import even, inc
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition

BATCH = 1000
FOLDER = Path(os.environ["BENCH_FOLDER"])
LATENESS = timedelta(minutes=10)
WINDOW = timedelta(minutes=1)


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
        return sorted(path.name for path in FOLDER.glob("part-*"))

    def build_part(self, step_id, for_part, resume_state):
        return Lines(FOLDER / for_part, resume_state or 0)


def tell(count, total):
    """In one write: the other process may be telling its share at the same moment."""
    os.write(1, f"ANSWER {count} {total}\n".encode())


class Counter(StatelessSinkPartition):
    """Count and sum of segments."""

    def __init__(self):
        self.count = self.total = 0

    def write_batch(self, items):
        self.count += len(items)
        self.total += sum([segment["n"] for segment in items])

    def close(self):
        tell(self.count, self.total)


class Running(StatelessSinkPartition):
    """Running counts: how many words are new, and how many there are."""

    def __init__(self):
        self.count = self.total = 0

    def write_batch(self, items):
        self.count += [count for _, count in items].count(1)
        self.total += len(items)

    def close(self):
        tell(self.count, self.total)


class Final(StatelessSinkPartition):
    """One value a key."""

    def __init__(self):
        self.values = {}

    def write_batch(self, items):
        self.values.update(items)

    def close(self):
        tell(len(self.values), sum(self.values.values()))


class Sink(DynamicSink):
    def __init__(self, partition):
        self.partition = partition

    def build(self, step_id, worker_index, worker_count):
        return self.partition()


def segments():
    """Workload a."""
    flow = Dataflow("segments")
    stream = op.input("read", flow, Folder())
    stream = op.map("parse", stream, msgspec.json.Decoder(dict).decode)
    stream = op.map("inc", stream, inc)
    stream = op.filter("even", stream, even)
    op.output("sink", stream, Sink(Counter))
    return flow


def _words(flow):
    stream = op.input("read", flow, Folder())
    return op.flat_map("split", stream, lambda line: line.decode().split())


def running_count():
    """Workload b: a count each time a word comes."""

    def count(state, word):
        state = (state or 0) + 1
        return state, state

    flow = Dataflow("running_count")
    keyed = op.key_on("key", _words(flow), lambda word: word)
    op.output("sink", op.stateful_map("count", keyed, count), Sink(Running))
    return flow


def final_count():
    """Workload b: one count a word, at the end of the data."""
    flow = Dataflow("final_count")
    counts = op.count_final("count", _words(flow), lambda word: word)
    op.output("sink", counts, Sink(Final))
    return flow


def windows():
    """Workload c. By default `fold_window` sorts events first, which takes 18 times as long."""
    flow = Dataflow("windows")
    stream = op.input("read", flow, Folder())
    stream = op.map("parse", stream, msgspec.json.Decoder(dict).decode)
    keyed = op.key_on("key", stream, lambda event: event["key"])
    folded = windowing.fold_window(
        "sum",
        keyed,
        windowing.EventClock(
            ts_getter=lambda event: datetime.fromtimestamp(event["ts"] / 1000, UTC),
            wait_for_system_duration=LATENESS,
        ),
        windowing.TumblingWindower(length=WINDOW, align_to=datetime(2020, 1, 1, tzinfo=UTC)),
        lambda: 0,
        lambda total, event: total + event["v"],
        lambda one, other: one + other,
        ordered=False,
    )
    stream = op.map("name", folded.down, lambda item: ((item[0], item[1][0]), item[1][1]))
    op.output("sink", stream, Sink(Final))
    return flow
