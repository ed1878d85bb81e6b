"""A function that takes more memory than there is."""

from __future__ import annotations

from typing import Any

CHUNK_BYTES = 16 << 20


def eats(segment: dict[str, Any]) -> dict[str, Any]:
    taken = []
    while segment["n"] == 3:
        taken.append(b"x" * CHUNK_BYTES)
    return segment
