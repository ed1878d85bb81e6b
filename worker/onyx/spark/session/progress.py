"""How far a run is, by Spark's own accounts of its jobs.

A classic session has them in the JVM, whether its web page is on or off. A Connect server sends
them while a query runs; they lack rows, and what is written.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from onyx.plugins.protocol import SealProgress
from onyx.spark.session.masters import is_connect

GROUP = "onyx"
"""The group of the jobs of a session that runs nothing else."""
REPORT_EVERY_S = 2.0
STAGES_MAX = 200
"""Newest stages of Spark that are looked at: each look is a dozen calls to the JVM."""


def progress_of(context: Any, group: str) -> SealProgress | None:
    """The progress of the jobs of a group in a SparkContext; None if none has begun."""
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
    if not stages:
        return None
    found = [_stage(store, stage) for stage in stages[-STAGES_MAX:]]
    numbers = SealProgress(*map(sum, zip(*found, strict=True)))  # type: ignore[arg-type]
    return replace(numbers, seen_at=str(context.uiWebUrl or ""))


def _stage(store: Any, stage: int) -> tuple[int, ...]:
    """The numbers of `SealProgress` of one stage."""
    try:
        data = store.lastStageAttempt(stage)
    except Exception:  # not planned yet, or forgotten
        return (0,) * 7
    skipped = data.status().toString() == "SKIPPED"
    return (
        0 if skipped else data.numTasks(),
        data.numCompleteTasks(),
        data.numFailedTasks(),
        data.inputRecords(),
        data.inputBytes(),
        data.outputRecords(),
        data.outputBytes(),
    )


class ConnectProgress:
    """The progress of one session of a Connect server: the sum over its operations."""

    def __init__(self) -> None:
        self._operations: dict[str | None, SealProgress] = {}

    @property
    def value(self) -> SealProgress | None:
        """So far; None before the first operation."""
        each = list(self._operations.values())
        if not each:
            return None
        return SealProgress(
            tasks=sum(one.tasks for one in each),
            tasks_done=sum(one.tasks_done for one in each),
            bytes_read=sum(one.bytes_read for one in each),
        )

    def take(
        self,
        stages: Iterable[Any] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        """A handler of PySpark's."""
        found = list(stages or ())
        if found:
            self._operations[operation_id] = SealProgress(
                tasks=sum(stage.num_tasks for stage in found),
                tasks_done=sum(stage.num_completed_tasks for stage in found),
                bytes_read=sum(stage.num_bytes_read for stage in found),
            )


@contextlib.contextmanager
def reported(
    master: str,
    session: Any,
    say: Callable[[SealProgress], None],
    every_s: float = REPORT_EVERY_S,
) -> Iterator[None]:
    """Report how far what runs inside is, whenever that has changed.

    Args:
        say: called on another thread, every `every_s` seconds at most.
    """
    connect = ConnectProgress()
    if is_connect(master):
        session.registerProgressHandler(connect.take)
    else:
        session.sparkContext.setJobGroup(GROUP, GROUP)

    def look() -> SealProgress | None:
        return connect.value if is_connect(master) else progress_of(session.sparkContext, GROUP)

    ended = threading.Event()

    def watch() -> None:
        said = None
        while not ended.wait(every_s):
            with contextlib.suppress(Exception):  # Spark may end at any time
                found = look()
                if found is not None and found != said:
                    said = found
                    say(found)

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join(REPORT_EVERY_S)
