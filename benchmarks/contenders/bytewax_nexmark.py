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
from nexmark.dicts import add_bid, add_count, better, few_auctions, in_euros, near, of_category

BATCH = 1000
FOLDER = Path(os.environ["BENCH_FOLDER"])
CLOCK_WAIT = timedelta(seconds=10)
WINDOW, SLIDE = timedelta(seconds=10), timedelta(seconds=2)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Rows(StatefulSourcePartition[dict[str, Any], None]):
    def __init__(self, path: Path, batch: int) -> None:
        self.batches = pq.ParquetFile(path).iter_batches(batch)

    def next_batch(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = next(self.batches).to_pylist()
        return rows

    def snapshot(self) -> None:
        return None


class Events(FixedPartitionedSource[dict[str, Any], None]):
    def __init__(self, kind: str, batch: int = BATCH) -> None:
        self.kind = kind
        self.batch = batch

    def list_parts(self) -> list[str]:
        return sorted(path.name for path in FOLDER.glob(f"{self.kind}-*.parquet"))

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Rows:
        return Rows(FOLDER / for_part, self.batch)


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


def q3() -> Dataflow:
    """By hand: what a seller has opened waits for the seller, and the seller stays for ever."""
    flow = Dataflow("q3")
    sells = op.filter_map("category", op.input("auctions", flow, Events("auctions")), of_category)
    registers = op.filter_map("near", op.input("persons", flow, Events("persons")), near)

    def meet(state: Any, event: dict[str, Any]) -> Any:
        person, waiting = state or (None, [])
        if "seller" in event:
            if person is None:
                return (None, [*waiting, event]), []
            return (person, []), [{**event, **person}]
        return (event, []), [{**each, **event} for each in waiting]

    both = op.merge(
        "both",
        op.key_on("by_seller", sells, lambda auction: str(auction["seller"])),
        op.key_on("by_id", registers, lambda person: str(person["id"])),
    )
    joined = op.stateful_flat_map("join", both, meet)
    op.output("write", op.map("row", joined, lambda item: item[1]), Sink("auction"))
    return flow


def q4() -> Dataflow:
    flow = Dataflow("q4")
    sold = op.map("category", winners(flow), lambda won: (str(won[0]["category"]), won[1]))
    sums = op.fold_final("sum", sold, lambda: [0, 0], lambda all, won: [all[0] + won, all[1] + 1])
    prices = op.map("row", sums, lambda item: {"price": item[1][0] // item[1][1]})
    op.output("write", prices, Sink("price"))
    return flow


def q6() -> Dataflow:
    flow = Dataflow("q6")

    def of_seller(won: Any) -> Any:
        auction, price = won
        return str(auction["seller"]), [auction["expires"], auction["id"], price]

    def average(item: Any) -> dict[str, Any]:
        prices = [price for _, _, price in item[1]]
        return {"price": sum(prices) // len(prices)}

    sold = op.map("seller", winners(flow), of_seller)
    last = op.fold_final("last", sold, list, lambda last, won: sorted([*last, won])[-10:])
    op.output("write", op.map("row", last, average), Sink("price"))
    return flow


def q9() -> Dataflow:
    flow = Dataflow("q9")
    prices = op.map("row", winners(flow), lambda won: {"price": won[1]})
    op.output("write", prices, Sink("price"))
    return flow


def winners(flow: Dataflow) -> Any:
    """By hand: each auction that somebody has bid on, and the highest price. It has the best bid of
    an auction, and those that have come before it; nothing is forgotten before the end of the
    data."""
    auctions = op.input("auctions", flow, Events("auctions"))
    bids = op.input("bids", flow, Events("bids"))

    def bid_on(state: Any, bid: dict[str, Any]) -> None:
        auction = state["auction"]
        if auction["date_time"] <= bid["date_time"] <= auction["expires"]:
            found = [bid["price"], bid["bidder"], bid["date_time"]]
            state["best"] = better(None, state["best"], found)

    def gather(state: Any, event: dict[str, Any]) -> Any:
        if "seller" in event:
            state["auction"] = event
            for bid in state.pop("waiting"):
                bid_on(state, bid)
        elif state["auction"] is None:
            state["waiting"].append(event)
        else:
            bid_on(state, event)
        return state

    both = op.merge(
        "both",
        op.key_on("by_id", auctions, lambda auction: str(auction["id"])),
        op.key_on("by_auction", bids, lambda bid: str(bid["auction"])),
    )
    empty = {"auction": None, "best": None}
    best = op.fold_final("winning", both, lambda: {**empty, "waiting": []}, gather)

    def won(item: Any) -> Any:
        state = item[1]
        return (state["auction"], state["best"][0]) if state["best"] else None

    return op.filter_map("won", best, won)


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
    # There are three auctions to a person. Read in step by event time, neither is late: the clock
    # of a key goes on with that of the machine.
    persons = op.input("persons", flow, Events("persons", BATCH // 3))
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


def q13() -> Dataflow:
    flow = Dataflow("q13")
    table = pq.read_table(FOLDER / "side-input.parquet").to_pylist()
    values = {row["key"]: row["value"] for row in table}

    def joined(bid: dict[str, Any]) -> dict[str, Any] | None:
        key = bid["auction"] % 10_000
        return {**bid, "key": key, "value": values[key]} if key in values else None

    bids = op.input("bids", flow, Events("bids"))
    op.output("write", op.filter_map("join", bids, joined), Sink("price"))
    return flow
