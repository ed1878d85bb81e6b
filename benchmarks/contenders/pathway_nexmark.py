"""Nexmark on Pathway: `python pathway_nexmark.py q5 FOLDER`, with a Python that has it.

It reads JSON Lines, as a table that does not change: all is one step of what it computes.
"""

import sys
from typing import Any

import pathway as pw

WINDOW_MS = 10_000
SLIDE_MS = 2_000


class Bid(pw.Schema):
    auction: int
    bidder: int
    price: int
    channel: str
    date_time: int


class Auction(pw.Schema):
    seller: int
    date_time: int


class Person(pw.Schema):
    person: int
    name: str
    date_time: int


def read(kind: str, schema: Any, renamed: dict[str, str] | None = None) -> Any:
    return pw.io.jsonlines.read(
        FOLDER, schema=schema, mode="static", object_pattern=f"{kind}-*.jsonl",
        json_field_paths=renamed,
    )  # fmt: skip


def q0() -> tuple[Any, str]:
    return read("bids", Bid), "price"


def q1() -> tuple[Any, str]:
    bids = read("bids", Bid)
    return bids.with_columns(price=bids.price * 908 // 1000), "price"


def q2() -> tuple[Any, str]:
    bids = read("bids", Bid)
    return bids.filter(bids.auction % 123 == 0).select(pw.this.auction, pw.this.price), "price"


def q5() -> tuple[Any, str]:
    bids = read("bids", Bid)
    sliding = pw.temporal.sliding(hop=SLIDE_MS, duration=WINDOW_MS, origin=0)
    windows = bids.windowby(bids.date_time, window=sliding, instance=bids.auction)
    counts = windows.reduce(
        auction=pw.this._pw_instance, start=pw.this._pw_window_start, bids=pw.reducers.count()
    )
    most = counts.groupby(counts.start).reduce(counts.start, bids=pw.reducers.max(counts.bids))
    joined = counts.join(most, counts.start == most.start, counts.bids == most.bids)
    return joined.select(counts.auction), "auction"


def q7() -> tuple[Any, str]:
    bids = read("bids", Bid)
    bids = bids.with_columns(start=bids.date_time // WINDOW_MS)
    highest = bids.groupby(bids.start).reduce(bids.start, price=pw.reducers.max(bids.price))
    joined = bids.join(highest, bids.start == highest.start, bids.price == highest.price)
    return joined.select(bids.price), "price"


def q8() -> tuple[Any, str]:
    persons = read("persons", Person, {"person": "/id"})  # a table has an `id` of its own
    auctions = read("auctions", Auction)
    persons = persons.with_columns(start=persons.date_time // WINDOW_MS)
    auctions = auctions.with_columns(start=auctions.date_time // WINDOW_MS)
    sold = auctions.groupby(auctions.seller, auctions.start).reduce(auctions.seller, auctions.start)
    joined = persons.join(sold, persons.person == sold.seller, persons.start == sold.start)
    return joined.select(persons.person), "person"


def main(query: str) -> None:
    table, key = {"q0": q0, "q1": q1, "q2": q2, "q5": q5, "q7": q7, "q8": q8}[query]()
    total = table.reduce(count=pw.reducers.count(), total=pw.reducers.sum(table[key]))
    last = {}

    def change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            last.update(row)

    pw.io.subscribe(total, on_change=change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print("ANSWER", last["count"], last["total"])


if __name__ == "__main__":
    FOLDER = sys.argv[2]
    main(sys.argv[1])
