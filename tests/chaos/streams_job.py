"""The job that joins two streams under chaos. Imported by the workers.

Both streams are computed from numbers. Times are out of order within a partition, but never by more
than the input allows, so no segment is late.
"""

from __future__ import annotations

import pyarrow as pa
import windows_job

KEYS = 400
DISORDER_MS = 200
BEFORE_MS, AFTER_MS = 300, 500


def gated_generator(context):
    return windows_job.gated_generator(context)


def time_of(number):
    return number + number * 2_654_435_761 % DISORDER_MS


def order(number: int):
    return {"key": number * 40_503 % KEYS, "n": number, "time": time_of(number)}


def payment(number: int):
    return {"of": number * 69_069 % KEYS, "m": number, "time": time_of(number)}


def order_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same, of a column of numbers."""
    return pa.RecordBatch.from_pydict(order(batch["n"].to_numpy()))


def payment_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(payment(batch["n"].to_numpy()))
