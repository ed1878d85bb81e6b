"""A job enters the cluster. The first entry of an id wins; a repeat changes nothing.

A job that upgrades another one kills the old job in the same step: there is no moment in which both
run, and none in which others could take the peers that become free. If the old job has just
completed, it has no state to carry over, and the new job starts without it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

from immutables import Map

from onyx.ids import JobId, Position
from onyx.replica import jobs
from onyx.replica.command import Command
from onyx.replica.spec import Job, JobSpec
from onyx.replica.state import Replica

V = TypeVar("V")


class SubmitJob(Command, frozen=True):
    """Start a job."""

    id: Job
    spec: JobSpec

    def apply(self, replica: Replica, position: Position) -> Replica:
        if jobs.is_known(replica, self.id):
            return replica
        job, spec = self.id, self.spec
        if spec.upgrades is not None and spec.upgrades not in (job, *replica.completed_jobs):
            replica = replace(replica, upgrades=replica.upgrades.set(job, spec.upgrades))
            if spec.upgrades in replica.jobs:
                replica = jobs.kill(replica, spec.upgrades)
        by_share = replica.job_scheduler == "percentage" and spec.percentage is not None
        tasks_by_share = spec.task_scheduler == "percentage"
        t = spec.by_name
        return replace(
            replica,
            jobs=(*replica.jobs, job),
            job_digests=replica.job_digests.set(job, spec.digest)
            if spec.digest
            else replica.job_digests,
            job_owners=_set(replica.job_owners, job, spec.owner or None),
            tasks=replica.tasks.set(job, tuple(t)),
            input_tasks=replica.input_tasks.set(job, spec.inputs),
            output_tasks=replica.output_tasks.set(job, spec.outputs),
            windowed_tasks=_set(replica.windowed_tasks, job, spec.windowed or None),
            stateful_jobs=replica.stateful_jobs.set(job, None)
            if spec.stateful
            else replica.stateful_jobs,
            exempt_tasks=replica.exempt_tasks.set(
                job, tuple(n for n, e in t.items() if e.acker_exempt)
            ),
            acker_percentage=_set(replica.acker_percentage, job, spec.acker_percentage),
            acker_exclude_inputs=_set(replica.acker_exclude_inputs, job, spec.acker_exclude_inputs),
            acker_exclude_outputs=_set(
                replica.acker_exclude_outputs, job, spec.acker_exclude_outputs
            ),
            task_schedulers=replica.task_schedulers.set(job, spec.task_scheduler),
            percentages=_set(replica.percentages, job, spec.percentage if by_share else None),
            task_percentages=_set(
                replica.task_percentages,
                job,
                Map({n: e.percentage for n, e in t.items() if e.percentage is not None})
                if tasks_by_share
                else None,
            ),
            saturation=replica.saturation.set(job, _limit(spec.max_peers)),
            task_saturation=replica.task_saturation.set(
                job, Map({n: _limit(e.max_peers) for n, e in t.items()})
            ),
            min_required_peers=replica.min_required_peers.set(
                job, Map({n: e.min_peers for n, e in t.items()})
            ),
            flux_policies=replica.flux_policies.set(
                job, Map({n: e.flux_policy for n, e in t.items() if e.flux_policy})
            ),
            required_tags=replica.required_tags.set(
                job, Map({n: e.required_tags for n, e in t.items() if e.required_tags})
            ),
        )


def _set(mapping: Map[JobId, V], job: JobId, value: V | None) -> Map[JobId, V]:
    return mapping if value is None else mapping.set(job, value)


def _limit(limit: int | None) -> float:
    return math.inf if limit is None else float(limit)
