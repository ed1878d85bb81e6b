"""Functions of jobs that take requests and give something back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from onyx import ack_return


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


def unnamed(order: dict[str, Any]) -> dict[str, Any]:
    """Gives back what the job does not name."""
    ack_return("nobody-asked", 1)
    return order
