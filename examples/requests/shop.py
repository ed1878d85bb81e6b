"""What becomes of an order."""

from __future__ import annotations

from typing import Any

import onyx

PRICE = 3


def price(order: dict[str, Any]) -> dict[str, Any]:
    """Puts a price on an order, and gives it back to whoever sent it."""
    total = PRICE * order["count"]
    onyx.ack_return("total", total)
    onyx.ack_return("orders", None)
    return {**order, "total": total}
