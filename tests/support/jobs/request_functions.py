"""Functions of jobs that take requests and give something back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from onyx import ack_return
from onyx.processors import Inbox, Processor


def price(order: dict[str, Any]) -> dict[str, Any]:
    """Gives back the total of an order, and its number."""
    total = 3 * order["count"]
    ack_return("total", total)
    ack_return("orders", None)
    ack_return("seen", order["order"])
    return {**order, "total": total}


def priced(order: dict[str, Any]) -> dict[str, Any]:
    """Gives back the total of an order."""
    ack_return("total", 3 * order["count"])
    return order


def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Gives back something for each row of columns."""
    ack_return("rows", pc.add(pc.multiply(batch["count"], 0), 1))
    return batch


def largest(values: list[int]) -> int:
    """Puts values together that were given back."""
    return max(values)


def large(order: dict[str, Any]) -> dict[str, Any]:
    """Gives back what is too large, and something that is not."""
    ack_return("large", "x" * 70_000)
    ack_return("total", order["count"])
    return order


class Pricing(Processor):
    """Gives back the total of an order."""

    def process_item(self, ordinal: int, item: dict[str, Any]) -> bool:
        if not self.try_emit(item):
            return False
        ack_return("total", 3 * item["count"])
        return True


class PricingColumns(Processor):
    """Gives back the total of each order of a batch."""

    def process(self, ordinal: int, inbox: Inbox[pa.RecordBatch]) -> None:
        batch = inbox.poll()
        assert batch is not None
        self.outbox.offer(batch)
        ack_return("total", pc.multiply(batch["count"], 3))


def divided(order: dict[str, Any]) -> dict[str, Any]:
    """Fails for a count of 0."""
    return {**order, "each": 10 // order["count"]}


class Dividing(Processor):
    """Fails for a count of 0."""

    def process_item(self, ordinal: int, item: dict[str, Any]) -> bool:
        return self.try_emit(divided(item))


class DividingColumns(Processor):
    """Fails for a batch that has a count of 0."""

    def process_item(self, ordinal: int, item: pa.RecordBatch) -> bool:
        return self.try_emit(pa.RecordBatch.from_pylist([divided(row) for row in item.to_pylist()]))


def kept(order: dict[str, Any], state: Any) -> dict[str, Any]:
    """Keeps something, and gives back for what it was given."""
    state.count = (state.count or 0) + order["count"]
    ack_return("total", order["count"])
    return order


def kept_columns(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    """The same over columns."""
    ack_return("total", batch["count"])
    return batch


def behind(order: dict[str, Any]) -> dict[str, Any]:
    """Gives back behind a task with state."""
    ack_return("behind", order["count"])
    return order
