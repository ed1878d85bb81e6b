"""Functions that the jobs of the integration tests name. They are a user's functions: plain."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pyarrow as pa

import onyx
from onyx.processors import Processor
from onyx.telemetry.logs import location

Segment = dict[str, Any]

tries: Counter[int] = Counter()
"""How often `heals` saw each number; clear it before a job."""
calls: list[str] = []
"""What the hooks of `hooks` were called for."""
gate = threading.Event()
"""`held` lets segments through while this is set."""


def same(segment: Segment) -> Segment:
    return segment


def inc(segment: Segment) -> Segment:
    return {**segment, "n": segment["n"] + 1}


def located(segment: Segment) -> Segment:
    """With what the log lines of the task have of the metadata of its job."""
    found = {key: value for key, value in location().items() if key.startswith("metadata.")}
    return {**segment, **found}


def add(amount: int, segment: Segment) -> Segment:
    return {**segment, "n": segment["n"] + amount}


def fails_at_7(segment: Segment) -> Segment:
    if segment.get("n") == 7:
        raise ValueError("seven is not allowed")
    return segment


def heals(segment: Segment) -> Segment:
    tries[segment["n"]] += 1
    if segment["n"] % 5 == 0 and tries[segment["n"]] == 1:
        raise ConnectionError("not at the first time")
    return segment


def asks(segment: Segment) -> Any:
    """`heals`, but it asks for the retry itself."""
    tries[segment["n"]] += 1
    return onyx.FAIL if segment["n"] % 5 == 0 and tries[segment["n"]] == 1 else segment


def asks_of_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = batch["n"].to_pylist()
    tries.update(numbers)
    again = pa.array([n % 5 == 0 and tries[n] == 1 for n in numbers])
    return batch.append_column("__retry__", again)


def held(segment: Segment) -> Segment | None:
    if not gate.wait(30.0):
        raise TimeoutError("nobody opened the gate")
    return segment


def even(event: Any, old: Segment, new: Segment, all_new: Any) -> bool:
    return bool(new["n"] % 2 == 0)


def more_than(event: Any, old: Segment, new: Segment, all_new: Any, limit: int) -> bool:
    return bool(new["n"] > limit)


def always(*_: Any) -> bool:
    return True


def nothing(*_: Any) -> None:
    return None


def is_value_error(event: Any, old: Segment, new: Any, all_new: Any) -> bool:
    return isinstance(new, ValueError)


def explain(event: Any, segment: Segment, error: Exception) -> Segment:
    return {"error": str(error), "task": event["task"], "segment": segment}


def hooks() -> dict[str, Any]:
    def note(name: str) -> Any:
        def hook(event: Any, lifecycle: Any) -> None:
            calls.append(
                f"{event['task']} {name} {dict(lifecycle.options).get('mark', '')}".strip()
            )

        return hook

    loop = ("before_task_start", "after_read_batch", "after_batch", "after_task_stop")
    return {name: note(name) for name in loop}


def spark_total(frame: Any) -> Any:
    return frame.groupBy().sum("n").withColumnRenamed("sum(n)", "total")


class Sums(Processor):
    def __init__(self, by: int) -> None:
        self.by = by
