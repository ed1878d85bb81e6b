"""Recovering a state log in the background, while the job waits: for a task with state (`state`)
and for an exactly-once output (`output`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from onyx.errors import Fenced
from onyx.ids import NO_POSITION
from onyx.replica.job_events import STATE_TAKEN_OVER, local_event
from onyx.state.location import check_shared, state_location
from onyx.state.recovery import CarryOver, RecoveredState, recover
from onyx.task.channels.wiring import Wiring
from onyx.task.parts import Runtime
from onyx.telemetry.catalog import RECOVERY_READ, RECOVERY_SIZE
from onyx.telemetry.interface import TaskMetrics
from onyx.telemetry.logs import happened

logger = logging.getLogger("onyx.task")

Made = TypeVar("Made")


def shards_of_rank(wiring: Wiring, shards: int) -> range:
    """The shards of so many shards that this peer owns."""
    return range(wiring.rank, shards, wiring.task_peers)


def from_state_log(
    runtime: Runtime,
    wiring: Wiring,
    shards: range,
    carry_over: CarryOver | None,
    make: Callable[[RecoveredState], Made],
) -> Made | None:
    """What `make` makes of the state of these shards, with the log that is this peer's from now on;
    None while it is being read and made, both in the background.
    `carry_over` gives shards their beginning."""
    services, metrics = runtime.services, runtime.metrics

    def work() -> Made:
        durable = runtime.delivery.durable
        store = services.state_store(durable)
        if durable:
            location = state_location(services.settings)
            check_shared(store, services.log, runtime.job_id, runtime.assignment.peer, location)
        begun_s = runtime.clock.monotonic_s()
        found = recover(
            store,
            runtime.job_id,
            runtime.task,
            wiring.version,
            wiring.rank,
            shards,
            services.settings.state,
            partial(report_recovery, metrics),
            carry_over,
            services.replica().ready_version(runtime.job_id) if durable else NO_POSITION,
        )
        made = make(found)
        if found.logs:
            _report_end(runtime, found, wiring.version, runtime.clock.monotonic_s() - begun_s)
        return made

    try:
        return runtime.assignment.background.poll("state", work)
    except Fenced:
        # A newer version has begun: its Rewire message is on the way to this peer.
        logger.info("task %s: a newer allocation has taken over its state", runtime.task)
        return None


def report_recovery(metrics: TaskMetrics, done_bytes: int, size_bytes: int) -> None:
    """Report how much of the state has been read, on another thread; the task waits for it."""
    metrics.set(RECOVERY_READ, done_bytes)
    metrics.set(RECOVERY_SIZE, size_bytes)


def _report_end(runtime: Runtime, found: RecoveredState, version: int, took_s: float) -> None:
    happened(
        local_event(
            STATE_TAKEN_OVER,
            runtime.job_id,
            task=runtime.task,
            shards=len(found.shards),
            logs=found.logs,
            records=found.values,
            seconds=round(took_s, 3),
            version=version,
        )
    )
