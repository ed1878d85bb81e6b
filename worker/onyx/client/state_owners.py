"""Which peers have a state that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.client.states.state import State
from onyx.ids import JobId, TaskName
from onyx.replica.state import Replica
from onyx.task.channels.wiring import Site, sites_of


def owners_of(replica: Replica, job: JobId, state: State, key: Any) -> Sequence[Site]:
    """The peers that have what is asked for of a group, or of ALL, in the order of their slots;
    none: no peer works on the task, or none has all of the state."""
    task = TaskName(state.task)
    if state.in_store or not replica.run(job).allocation.get(task):
        return ()
    sites = sites_of(replica, job, task)
    ranks = {shard % len(sites) for shard in state.shards(key)}
    return [sites[rank] for rank in sorted(ranks)]
