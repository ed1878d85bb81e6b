"""A function that takes more memory than there is."""

from __future__ import annotations

from typing import Any

CHUNK_BYTES = 16 << 20


def hungry() -> dict[str, Any]:
    """A hook that takes it over no segment in particular."""

    def before_batch(event: Any, lifecycle: Any) -> None:
        eats({"n": 3})

    return {"before_batch": before_batch}


def same(segment: dict[str, Any]) -> dict[str, Any]:
    return segment


def eats(segment: dict[str, Any]) -> dict[str, Any]:
    taken = []
    while segment["n"] == 3:
        taken.append(b"x" * CHUNK_BYTES)
    return segment
