"""Taking over the state of a task in the background, while its job waits."""

from __future__ import annotations

import logging
from collections.abc import Callable

from onyx.errors import Fenced
from onyx.state.recovery import Inherit, Recovered, recover
from onyx.state.sharing import check_shared
from onyx.state.stores import state_place
from onyx.task.state import Task

logger = logging.getLogger("onyx.task")


def shards_of_rank(task: Task, shards: int) -> range:
    """Those of so many shards that this peer owns."""
    wiring = task.live.wiring
    return range(wiring.rank, shards, wiring.task_peers)


def recovered_state(
    task: Task,
    shards: range,
    inherit: Inherit | None,
    then: Callable[[Recovered], None] = lambda recovered: None,
) -> Recovered | None:
    """The state of these shards, with the log that is this peer's from now on; None while it is
    being read. `inherit` gives shards their beginning, and `then` is done with all of them, in the
    background too."""
    wiring, services = task.live.wiring, task.services

    def work() -> Recovered:
        durable = task.static.tracked
        store = services.state_store(durable)
        if durable:
            place = state_place(services.settings)
            check_shared(store, services.log, task.job_id, task.peer, place)
        recovered = recover(
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
        then(recovered)
        return recovered

    try:
        return task.poll("state", lambda: services.background(work))
    except Fenced:
        # A newer version has begun, of which this peer will hear in a moment.
        logger.info("task %s: a newer allocation has taken over its state", task.name)
        return None
