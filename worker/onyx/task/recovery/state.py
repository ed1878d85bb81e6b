"""Taking over the state of a task in the background, while its job waits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from onyx.errors import Fenced
from onyx.state.recovery import Inherit, Recovered, recover
from onyx.state.sharing import check_shared
from onyx.state.stores.opening import state_place
from onyx.task.task import Task

logger = logging.getLogger("onyx.task")

Made = TypeVar("Made")


def shards_of_rank(task: Task, shards: int) -> range:
    """Those of so many shards that this peer owns."""
    wiring = task.live.wiring
    return range(wiring.rank, shards, wiring.task_peers)


def recovered_state(
    task: Task,
    shards: range,
    inherit: Inherit | None,
    make: Callable[[Recovered], Made],
) -> Made | None:
    """What `make` makes of the state of these shards, with the log that is this peer's from now on;
    None while it is being read and made, both in the background. `inherit` gives shards their
    beginning."""
    wiring, services = task.live.wiring, task.services

    def work() -> Made:
        durable = task.static.tracked
        store = services.state_store(durable)
        if durable:
            place = state_place(services.settings)
            check_shared(store, services.log, task.job_id, task.peer, place)
        return make(
            recover(
                store,
                task.job_id,
                task.name,
                wiring.version,
                wiring.rank,
                shards,
                services.settings.state,
                task.metrics.recovering,
                inherit,
            )
        )

    try:
        return task.poll("state", lambda: services.background(work))
    except Fenced:
        # A newer version has begun, of which this peer will hear in a moment.
        logger.info("task %s: a newer allocation has taken over its state", task.name)
        return None
