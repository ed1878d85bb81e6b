"""Some tasks of a simulated job work on columns: the same functions, given record batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from onyx.flow.leaves import ROW

Segment = dict[str, Any]
OVER_COLUMNS = "_columns"
"""What the name of a function ends in that takes a record batch."""
SHARE = 0.5


def draw_formats(choice: random.Random, spec: Mapping[str, Any]) -> None:
    """In some jobs some tasks have `batchFormat: arrow`."""
    if choice.random() < SHARE:
        return
    for entry in spec["catalog"]:
        if choice.random() < SHARE:
            entry["batchFormat"] = "arrow"
            if "fn" in entry:
                entry["fn"] += OVER_COLUMNS


def over_columns(
    function: Callable[[Segment], Segment | Iterable[Segment]],
) -> Callable[[pa.RecordBatch], pa.RecordBatch | None]:
    """A function over a record batch that calls `function` for each row."""

    def over(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        made: list[Segment] = []
        for row in batch.to_pylist():
            number = row.pop(ROW)
            found = function(row)
            several = [found] if isinstance(found, dict) else found
            made += [{**each, ROW: number} for each in several]
        return pa.RecordBatch.from_pylist(made) if made else None

    return over
