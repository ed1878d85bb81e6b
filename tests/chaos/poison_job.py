"""Functions of which one segment ends the process, in the ways in which that happens."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

POISON = 3_210
POISON_TOO = 4_987
Segment = dict[str, Any]


def exits(segment: Segment) -> Segment:
    if segment["n"] == POISON:
        os._exit(3)
    return segment


def exits_slowly(segment: Segment) -> Segment:
    """Long enough for kills to hit it."""
    time.sleep(0.0005)
    return exits(segment)


def is_killed(segment: Segment) -> Segment:
    """As the kernel ends it for want of memory."""
    if segment["n"] == POISON:
        os.kill(os.getpid(), signal.SIGKILL)
    return segment


def stays_inside(segment: Segment) -> Segment:
    """Somebody who waits for the file kills the process meanwhile."""
    if segment["n"] == POISON:
        Path(os.environ["POISON_FOLDER"], f"{os.getpid()}.inside").touch()
        time.sleep(600)
    return segment


def slow(segment: Segment) -> Segment:
    time.sleep(0.0005)
    return segment


def crashes(segment: Segment) -> Segment:
    if segment["n"] == POISON:
        ctypes.string_at(0)
    return segment


def quits(segment: Segment) -> Segment:
    if segment["n"] == POISON:
        sys.exit("enough")
    return segment


def same(segment: Segment) -> Segment:
    return segment


def exits_over_two(segments: list[Segment]) -> list[Segment]:
    """Of all batches, those take longer that have none of them."""
    time.sleep(0.02)
    for segment in segments:
        if segment["n"] in (POISON, POISON_TOO):
            os._exit(5)
    return segments


def crashes_over_two(columns: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(0.02)
    if {POISON, POISON_TOO}.intersection(columns["n"].to_pylist()):
        ctypes.string_at(0)
    return columns


def exits_in_batch(segments: list[Segment]) -> list[Segment]:
    return [exits(segment) for segment in segments]


def exits_in_predicate(event: Any, old: Segment, new: Segment, all_new: Any) -> bool:
    exits(new)
    return True


def exits_in_output(segment: Segment) -> None:
    exits(segment)


def exiting_aggregation() -> dict[str, Any]:
    return {
        "init": lambda window: 0,
        "create_state_update": lambda window, state, segment: exits(segment)["n"],
        "apply_state_update": lambda window, state, update: state + update,
        "super_aggregation": lambda window, one, other: one + other,
    }


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: int) -> Segment:
    return {"sum": state}


def exiting_hooks() -> dict[str, Any]:
    return {"before_task_start": lambda event, lifecycle: os._exit(4)}
