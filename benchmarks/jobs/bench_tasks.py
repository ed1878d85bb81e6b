"""The user's functions of workload a, the same for every program that is measured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def inc(segment: dict[str, Any]) -> dict[str, Any]:
    return {**segment, "n": segment["n"] + 1}


def even(segment: dict[str, Any]) -> bool:
    n: int = segment["n"]
    return n % 2 == 0


def inc_even(segment: dict[str, Any]) -> dict[str, Any] | None:
    """Add one; a segment that is odd then ends here."""
    segment = inc(segment)
    return segment if even(segment) else None


def is_even(event: Any, old: Any, new: dict[str, Any], all_new: Any) -> bool:
    """`even` as the predicate of a flow condition."""
    return even(new)


class Answer:
    """What has reached the sink of the present job in this process."""

    count = 0
    total = 0


def count(segments: list[dict[str, Any]]) -> None:
    """The sink: count and sum, a batch at a time."""
    Answer.count += len(segments)
    Answer.total += sum([segment["n"] for segment in segments])


def calls() -> dict[str, Callable[..., None]]:
    """Lifecycle of the sink: each process leaves its share of the answer in a folder."""
    return {"before_task_start": begin_answer, "after_task_stop": leave_answer}


def begin_answer(event: Any, lifecycle: Any) -> None:
    Answer.count = Answer.total = 0


def leave_answer(event: Any, lifecycle: Any) -> None:
    path = Path(lifecycle.options["folder"]) / f"{os.getpid()}.json"
    path.write_text(json.dumps([Answer.count, Answer.total]))
