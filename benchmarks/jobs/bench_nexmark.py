"""The output of the Nexmark jobs when they are measured: how many rows, and the sum of a column."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
from bench_tasks import Answer


def tally(rows: Any, key: str) -> None:
    """Rows are a list of dicts or a record batch."""
    if isinstance(rows, list):
        Answer.count += len(rows)
        Answer.total += sum([row[key] for row in rows])
    else:
        Answer.count += rows.num_rows
        Answer.total += pc.sum(rows[key]).as_py() or 0


def prices(rows: Any) -> None:
    tally(rows, "price")


def auctions(rows: Any) -> None:
    tally(rows, "auction")


def persons(rows: Any) -> None:
    tally(rows, "person")
