"""A function that is mended: it fails for odd numbers, and the next version of it does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Segment = dict[str, Any]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def dated(segment: Segment) -> Segment:
    """With values that JSON has in another form."""
    n = segment["n"]
    return {"n": n, "at": BEGIN + timedelta(hours=n), "blob": bytes([n % 256])}


def broken(segment: Segment) -> Segment:
    if segment["n"] % 2:
        raise ValueError(f"odd {segment['n']}")
    return segment


def broken_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    odd = pc.equal(pc.bit_wise_and(batch["n"], 1), 1)
    why = pc.if_else(odd, "odd", pa.scalar(None, pa.string()))
    return batch.append_column("__error__", why)


def mended(segment: Segment) -> Segment:
    assert isinstance(segment["at"], datetime), segment
    assert isinstance(segment["blob"], bytes), segment
    return segment


def mended_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    assert pa.types.is_timestamp(batch["at"].type), batch.schema
    assert pa.types.is_binary(batch["blob"].type), batch.schema
    return batch
