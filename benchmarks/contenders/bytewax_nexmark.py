"""Nexmark on Bytewax: `BENCH_FOLDER=... python -m bytewax.run "bytewax_nexmark:q5()"`

Windows are the library's own, by event time and not ordered, which is faster. What follows a window
(the highest count of q5) is folded at the end of the data.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from nexmark.dicts import add_bid, add_count, few_auctions, in_euros

BATCH = 1000
FOLDER = Path(os.environ["BENCH_FOLDER"])
CLOCK_WAIT = timedelta(seconds=10)
WINDOW, SLIDE = timedelta(seconds=10), timedelta(seconds=2)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Rows(StatefulSourcePartition[dict[str, Any], None]):
    def __init__(self, path: Path) -> None:
        self.batches = pq.ParquetFile(path).iter_batches(BATCH)

    def next_batch(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = next(self.batches).to_pylist()
        return rows

    def snapshot(self) -> None:
        return None


class Events(FixedPartitionedSource[dict[str, Any], None]):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def list_parts(self) -> list[str]:
        return sorted(path.name for path in FOLDER.glob(f"{self.kind}-*.parquet"))

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Rows:
        return Rows(FOLDER / for_part)


class Tally(StatelessSinkPartition[dict[str, Any]]):
    """How many rows, and the sum of a column."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.count = self.total = 0

    def write_batch(self, items: list[Any]) -> None:
        self.count += len(items)
        self.total += sum([item[self.key] for item in items])

    def close(self) -> None:
        os.write(1, f"ANSWER {self.count} {self.total}\n".encode())


class Sink(DynamicSink[dict[str, Any]]):
    def __init__(self, key: str) -> None:
        self.key = key

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Tally:
        return Tally(self.key)


def event_time(event: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(event["date_time"] / 1000, UTC)


def clock() -> windowing.EventClock[Any]:
    return windowing.EventClock(ts_getter=event_time, wait_for_system_duration=CLOCK_WAIT)


def every_ten_seconds() -> windowing.TumblingWindower:
    return windowing.TumblingWindower(length=WINDOW, align_to=EPOCH)


def q0() -> Dataflow:
    flow = Dataflow("q0")
    op.output("write", op.input("bids", flow, Events("bids")), Sink("price"))
    return flow


def q1() -> Dataflow:
    flow = Dataflow("q1")
    bids = op.input("bids", flow, Events("bids"))
    op.output("write", op.map("in_euros", bids, in_euros), Sink("price"))
    return flow


def q2() -> Dataflow:
    flow = Dataflow("q2")
    bids = op.input("bids", flow, Events("bids"))
    op.output("write", op.filter_map("few", bids, few_auctions), Sink("price"))
    return flow


def q5() -> Dataflow:
    flow = Dataflow("q5")
    bids = op.input("bids", flow, Events("bids"))
    keyed = op.key_on("by_auction", bids, lambda bid: str(bid["auction"]))
    sliding = windowing.SlidingWindower(length=WINDOW, offset=SLIDE, align_to=EPOCH)
    counts = windowing.fold_window(
        "counts", keyed, clock(), sliding, lambda: 0, lambda bids, bid: bids + 1,
        lambda one, other: one + other, ordered=False,
    )  # fmt: skip
    by_window = op.map("by_window", counts.down, lambda it: (str(it[1][0]), [int(it[0]), it[1][1]]))
    most = op.fold_final(
        "most", by_window, lambda: {"bids": 0, "auctions": []},
        lambda most, count: add_count(None, most, count),
    )  # fmt: skip
    rows = op.flat_map("rows", most, lambda item: [{"auction": a} for a in item[1]["auctions"]])
    op.output("write", rows, Sink("auction"))
    return flow


def q7() -> Dataflow:
    flow = Dataflow("q7")
    bids = op.key_on("all", op.input("bids", flow, Events("bids")), lambda bid: "all")
    highest = windowing.fold_window(
        "highest", bids, clock(), every_ten_seconds(), list,
        lambda bids, bid: add_bid(None, bids, bid), lambda one, other: one + other, ordered=False,
    )  # fmt: skip
    op.output("write", op.flat_map("rows", highest.down, lambda item: item[1][1]), Sink("price"))
    return flow


def q8() -> Dataflow:
    flow = Dataflow("q8")
    persons = op.input("persons", flow, Events("persons"))
    auctions = op.input("auctions", flow, Events("auctions"))
    joined = windowing.join_window(
        "joined", clock(), every_ten_seconds(),
        op.key_on("by_id", persons, lambda person: str(person["id"])),
        op.key_on("by_seller", auctions, lambda auction: str(auction["seller"])),
        insert_mode="first", emit_mode="final", ordered=False,
    )  # fmt: skip

    def row(item: Any) -> dict[str, Any] | None:
        person, (_, (registered, sold)) = item
        return {"person": int(person)} if registered and sold else None

    op.output("write", op.filter_map("rows", joined.down, row), Sink("person"))
    return flow
