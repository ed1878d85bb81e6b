"""Workloads on Bytewax. `BENCH_FOLDER=... python -m bytewax.run "bytewax_flows:segments()"`

Two processes: `python -m bytewax.testing "bytewax_flows:running_count()" -p 2`. Each worker prints
its share of the answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import bytewax.operators as op
import msgspec
from bench_tasks import even, inc
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition

BATCH = 1000
FOLDER = Path(os.environ["BENCH_FOLDER"])
LATENESS = timedelta(minutes=10)
WINDOW = timedelta(minutes=1)


class Lines(StatefulSourcePartition[bytes, int]):
    """One file, with the number of the next line as its state."""

    def __init__(self, path: Path, start: int) -> None:
        self.file = path.open("rb")
        self.next = sum(1 for _ in islice(self.file, start))

    def next_batch(self) -> list[bytes]:
        lines = list(islice(self.file, BATCH))
        if not lines:
            raise StopIteration
        self.next += len(lines)
        return lines

    def snapshot(self) -> int:
        return self.next

    def close(self) -> None:
        self.file.close()


class Folder(FixedPartitionedSource[bytes, int]):
    def list_parts(self) -> list[str]:
        return sorted(path.name for path in FOLDER.glob("part-*"))

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Lines:
        return Lines(FOLDER / for_part, resume_state or 0)


def tell(count: int, total: int) -> None:
    """In one write: the other process may be telling its share at the same moment."""
    os.write(1, f"ANSWER {count} {total}\n".encode())


class Counter(StatelessSinkPartition[dict[str, Any]]):
    """Count and sum of segments."""

    def __init__(self) -> None:
        self.count = self.total = 0

    def write_batch(self, items: list[Any]) -> None:
        self.count += len(items)
        self.total += sum([segment["n"] for segment in items])

    def close(self) -> None:
        tell(self.count, self.total)


class Running(StatelessSinkPartition[tuple[str, int]]):
    """Running counts: how many words are new, and how many there are."""

    def __init__(self) -> None:
        self.count = self.total = 0

    def write_batch(self, items: list[Any]) -> None:
        self.count += [count for _, count in items].count(1)
        self.total += len(items)

    def close(self) -> None:
        tell(self.count, self.total)


class Final(StatelessSinkPartition[tuple[Any, int]]):
    """One value a key."""

    def __init__(self) -> None:
        self.values: dict[Any, int] = {}

    def write_batch(self, items: list[Any]) -> None:
        self.values.update(items)

    def close(self) -> None:
        tell(len(self.values), sum(self.values.values()))


class Sink(DynamicSink[Any]):
    def __init__(self, partition: Callable[[], StatelessSinkPartition[Any]]) -> None:
        self.partition = partition

    def build(
        self, step_id: str, worker_index: int, worker_count: int
    ) -> StatelessSinkPartition[Any]:
        return self.partition()


def _parsed(flow: Dataflow) -> Stream[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict).decode
    return op.map("parse", op.input("read", flow, Folder()), decode)


def segments() -> Dataflow:
    """Workload a."""
    flow = Dataflow("segments")
    stream = op.map("inc", _parsed(flow), inc)
    stream = op.filter("even", stream, even)
    op.output("sink", stream, Sink(Counter))
    return flow


def _words(flow: Dataflow) -> Stream[str]:
    stream = op.input("read", flow, Folder())
    return op.flat_map("split", stream, lambda line: line.decode().split())


def running_count() -> Dataflow:
    """Workload b: a count each time a word comes."""

    def count(state: int | None, word: str) -> tuple[int, int]:
        state = (state or 0) + 1
        return state, state

    flow = Dataflow("running_count")
    keyed = op.key_on("key", _words(flow), lambda word: word)
    op.output("sink", op.stateful_map("count", keyed, count), Sink(Running))
    return flow


def final_count() -> Dataflow:
    """Workload b: one count a word, at the end of the data."""
    flow = Dataflow("final_count")
    counts = op.count_final("count", _words(flow), lambda word: word)
    op.output("sink", counts, Sink(Final))
    return flow


def windows() -> Dataflow:
    """Workload c. By default `fold_window` sorts events first, which takes 18 times as long."""
    flow = Dataflow("windows")
    keyed = op.key_on("key", _parsed(flow), lambda event: event["key"])
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
    sums = op.map("name", folded.down, lambda item: ((item[0], item[1][0]), item[1][1]))
    op.output("sink", sums, Sink(Final))
    return flow
