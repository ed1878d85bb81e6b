"""Functions with state by key that tests run on peers and in queries of Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

EVERY_MS = 10


def track(segment: dict[str, Any], state: Any) -> list[dict[str, Any]]:
    """The number and the sum of a key so far; a timer at the next ten; at 13 an error."""
    if segment["v"] == 13:
        raise ValueError("thirteen")
    state.count = (state.count or 0) + 1
    state.last.append(segment["v"])
    del state.last[:-3]
    state.by[f"of {segment['v'] % 3}"] = segment["v"]
    due_ms = (segment["at"] // EVERY_MS + 1) * EVERY_MS
    state.set_timer(f"at {due_ms}", due_ms)
    return [
        {"key": state.key, "count": state.count, "last": list(state.last), "by": dict(state.by)}
    ]


def due(timer: Any, state: Any) -> dict[str, Any]:
    """When a timer was due, and which one."""
    return {"key": state.key, "due": timer.due_ms, "name": timer.name}


def ended(timer: Any, state: Any) -> dict[str, Any] | None:
    """Where event time ends, by the timers that it does not reach."""
    if timer.due_ms <= state.event_time_ms:
        return None
    return {"key": state.key, "due": timer.due_ms, "time": state.event_time_ms}


def counted(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    """The number of a key so far, in columns."""
    counts = state.count.fill_null(0).to_pylist()
    found = []
    for code in state.groups.to_pylist():
        counts[code] += 1
        found.append(counts[code])
    state.count = pa.array(counts, pa.int64())
    return pa.record_batch({"key": batch["key"], "v": batch["v"], "count": found})


def tallied(segment: dict[str, Any], state: Any) -> None:
    """Only counts."""
    state.count = (state.count or 0) + 1


def same(segment: dict[str, Any]) -> dict[str, Any]:
    """The segment itself."""
    return segment


def counting(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    """The number of a key so far."""
    state.count = (state.count or 0) + 1
    return {"key": state.key, "count": state.count}


def counting_columns(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    """As `counting`, in columns."""
    return counted(batch, state).select(["key", "count"])


def counting_to_12(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    """As `counting`; at 13 an error."""
    if segment["v"] == 13:
        raise ValueError("thirteen")
    return counting(segment, state)
