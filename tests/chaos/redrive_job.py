"""The job whose dead letters go in again while processes are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MENDED = "mended"


def work(segment: dict[str, Any]) -> dict[str, Any]:
    """Fails for odd numbers until somebody has mended it."""
    if segment["n"] % 2 and not Path(segment["folder"], MENDED).exists():
        raise ValueError("odd")
    return segment
