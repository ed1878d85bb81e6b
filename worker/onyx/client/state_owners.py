"""Which peers have the state of a window that is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from onyx.client.window_view import Question, asked_of
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.ids import TaskName
from onyx.model.job import Job
from onyx.replica.state import Replica
from onyx.task.channels.wiring import Site, has_one_owner, sites_of
from onyx.windows.firing import ALL


def owners_of(replica: Replica, job: Job, question: Question) -> Sequence[Site]:
    """The peers that have what is asked for; none: it is read where it is kept, because no peer
    works on the task, or Spark runs the job or aggregates the window."""
    asked = asked_of(job, question)
    task = TaskName(asked.task)
    if (
        job.engine == "spark"
        or asked.by_spark
        or not replica.run(question.job).allocation.get(task)
    ):
        return ()
    sites = sites_of(replica, question.job, task)
    if has_one_owner(job, task):
        return sites[:1]
    if question.select.key is ALL:
        return sites[:SHARDS]
    return [sites[shard_of(question.select.key) % len(sites)]]
