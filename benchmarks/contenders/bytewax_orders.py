"""The orders job on Bytewax: `BENCH_FOLDER=... BENCH_OUT=... python -m bytewax.run bytewax_orders`

Windows are the library's own. It has no timers by event time, so the state looks at each order and
at the end. No recovery store.
"""

from __future__ import annotations

import csv
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import msgspec
from bench_orders import LARGE, MINUTE_MS, WITHIN_MS, alert
from bytewax.connectors.files import FileSink, FileSource
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing

FOLDER, OUT = Path(os.environ["BENCH_FOLDER"]), Path(os.environ["BENCH_OUT"])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLOCK_WAIT = timedelta(minutes=1)
"""Its event time goes on with the clock as well: on a busy machine orders would be late."""
DECODER = msgspec.json.Decoder()

with (FOLDER / "users.csv").open() as users:
    COUNTRIES = {row["user"]: row["country"] for row in csv.DictReader(users)}


def decoded(line: str) -> dict[str, Any] | str:
    try:
        order: dict[str, Any] = DECODER.decode(line)
    except msgspec.DecodeError:
        return line
    order["country"] = COUNTRIES.get(order["user"])
    return order


class Watch(op.StatefulLogic[dict[str, Any], dict[str, Any], tuple[int, int]]):
    """As `bench_orders.watch`."""

    def __init__(self, kept: tuple[int, int] | None) -> None:
        self.since, self.large = kept or (-1, 0)
        self.user = ""

    def on_item(self, order: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
        if order["amount"] < LARGE:
            return [], False
        self.user, found = order["user"], None
        if self.large and order["at"] < self.since + WITHIN_MS:
            self.large += 1
            return [], False
        found = alert(self.user, self.since, self.large)
        self.since, self.large = order["at"], 1
        return [found] if found else [], False

    def on_eof(self) -> tuple[list[dict[str, Any]], bool]:
        found = alert(self.user, self.since, self.large)
        return [found] if found else [], True

    def snapshot(self) -> tuple[int, int]:
        return self.since, self.large


def at(order: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(order["at"] / 1000, UTC)


def line(row: dict[str, Any]) -> tuple[str, str]:
    return "", json.dumps(row)


def minute(counted: tuple[str, tuple[int, int]]) -> dict[str, Any]:
    country, (number, total) = counted
    return {"group": country, "lower": number * MINUTE_MS, "state": total}


flow = Dataflow("orders")
lines = op.input("lines", flow, FileSource(FOLDER / "orders.jsonl", batch_size=1000))
parsed = op.branch("bad", op.map("decode", lines, decoded), lambda each: isinstance(each, dict))
orders: Any = parsed.trues

clock = windowing.EventClock(at, wait_for_system_duration=CLOCK_WAIT)
minutes = windowing.TumblingWindower(length=timedelta(milliseconds=MINUTE_MS), align_to=EPOCH)
by_country = op.key_on("country", orders, lambda order: order["country"])
sums = windowing.fold_window(
    "sums", by_country, clock, minutes, lambda: 0, lambda total, each: total + each["amount"],
    lambda one, other: one + other, ordered=False,
)  # fmt: skip
op.output(
    "minutes",
    op.map("minute", op.map("row", sums.down, minute), line),
    FileSink(OUT / "minutes.jsonl"),
)
by_user = op.key_on("user", orders, lambda order: order["user"])
watched = op.stateful("watch", by_user, Watch)
op.output(
    "alerts", op.map("alert", watched, lambda each: line(each[1])), FileSink(OUT / "alerts.jsonl")
)
op.output(
    "bad-rows",
    op.map("letter", parsed.falses, lambda text: line({"raw": text})),
    FileSink(OUT / "bad.jsonl"),
)
