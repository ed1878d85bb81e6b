"""The function of the jobs with bad records, over record batches and over dicts."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc


def arrow_with_speed(batch: Any) -> Any:
    return batch.append_column("speed", pc.divide(batch["km"], batch["hours"]))


def dicts_with_speed(segment: dict[str, Any]) -> dict[str, Any]:
    return {**segment, "speed": segment["km"] / segment["hours"]}
