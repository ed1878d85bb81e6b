"""What `orders.py` asks of orders: who has had three large ones within ten minutes."""

from __future__ import annotations

from typing import Any

LARGE = 90_000
"""Cents of an order that counts."""
MANY = 3
WITHIN_MS = 600_000
MINUTE_MS = 60_000


def alert(user: str, since_ms: int, large: int) -> dict[str, Any] | None:
    """What is said of a user ten minutes after the first of so many large orders."""
    return {"user": user, "since": since_ms, "large": large} if large >= MANY else None


def watch(order: dict[str, Any], state: Any) -> dict[str, Any] | None:
    """Count large orders of a user from the first one on."""
    if order["amount"] < LARGE:
        return None
    since, found = state.since, None
    if since is not None and order["at"] >= since + WITHIN_MS:
        found, since = alert(state.key, since, state.large), None
    if since is not None:
        state.large += 1
        return None
    state.since, state.large = order["at"], 1
    state.set_timer("due", order["at"] + WITHIN_MS)
    return found


def due(timer: Any, state: Any) -> dict[str, Any] | None:
    """Ten minutes after the first."""
    found = alert(state.key, state.since, state.large)
    state.clear()
    return found
