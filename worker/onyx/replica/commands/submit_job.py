"""A job enters the cluster. The first entry of an id wins; a repeat changes nothing.

One that comes in the place of another job kills that in the same step: there is no moment in which
both run, and none in which others could take the peers that become free. If that has just
completed, it has nothing to carry on, and the new one begins anew.

The arguments say what scheduling must know; the job itself lies in the chunk store under `digest`.
A limit that is missing, null or the text "Infinity" means no limit (JSON has no infinity).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal, TypeVar

from immutables import Map
from msgspec import Meta

from onyx.ids import JobId, Position
from onyx.replica import jobs
from onyx.replica.command import (
    Arguments,
    Count,
    Diff,
    Digest,
    Job,
    Percent,
    Task,
    no_reactions,
)
from onyx.replica.state import Replica

NAME = "submit-job"

V = TypeVar("V")

Limit = int | float | Literal["Infinity"] | None
TASKS_MAX = 10_000
OWNER_CHARACTERS_MAX = 1_024


class Args(Arguments, frozen=True):
    id: Job
    tasks: tuple[Task, ...]
    """All tasks, parents before children."""
    task_scheduler: str
    inputs: tuple[Task, ...] = ()
    outputs: tuple[Task, ...] = ()
    windowed: tuple[Task, ...] = ()
    """Tasks whose windows begin trees of their own."""
    stateful: bool = False
    """Whether the job keeps state logs."""
    saturation: Limit = None
    """Most peers of the job."""
    task_saturation: dict[Task, Limit] | None = None
    min_required_peers: dict[Task, Count] | None = None
    flux_policies: dict[Task, str] | None = None
    required_tags: dict[Task, tuple[str, ...]] | None = None
    exempt_tasks: tuple[Task, ...] = ()
    acker_percentage: Percent | None = None
    acker_exclude_inputs: bool | None = None
    acker_exclude_outputs: bool | None = None
    percentage: Percent | None = None
    task_percentages: dict[Task, Percent] | None = None
    digest: Digest = ""
    resumes: Job | None = None
    """The job in whose place it comes."""
    owner: Annotated[str, Meta(max_length=OWNER_CHARACTERS_MAX)] = ""
    """Who has submitted it and ends it when it is wanted no more, in words of its own."""

    def __post_init__(self) -> None:
        if not 0 < len(self.tasks) <= TASKS_MAX or len(set(self.tasks)) < len(self.tasks):
            raise ValueError("tasks must be given, each once")
        named = {*self.inputs, *self.outputs, *self.windowed, *self.exempt_tasks}
        for by_task in (
            self.task_saturation,
            self.min_required_peers,
            self.flux_policies,
            self.required_tags,
            self.task_percentages,
        ):
            named.update(by_task or ())
        if not named <= set(self.tasks):
            raise ValueError("all tasks that are spoken of must be in tasks")
        limits = (self.saturation, *(self.task_saturation or {}).values())
        if not all(_limit(limit) >= 0 for limit in limits):
            raise ValueError("a limit is a number of peers")


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if jobs.is_known(replica, args.id):
        return replica
    job = args.id
    if args.resumes is not None and args.resumes not in (job, *replica.completed_jobs):
        replica = replace(replica, resumed_jobs=replica.resumed_jobs.set(job, args.resumes))
        if args.resumes in replica.jobs:
            replica = jobs.kill(replica, args.resumes)
    by_share = replica.job_scheduler == "percentage" and args.percentage is not None
    tasks_by_share = args.task_scheduler == "percentage"
    limits = {task: _limit(limit) for task, limit in (args.task_saturation or {}).items()}
    return replace(
        replica,
        jobs=(*replica.jobs, job),
        job_digests=replica.job_digests.set(job, args.digest)
        if args.digest
        else replica.job_digests,
        job_owners=_set(replica.job_owners, job, args.owner or None),
        tasks=replica.tasks.set(job, args.tasks),
        input_tasks=replica.input_tasks.set(job, args.inputs),
        output_tasks=replica.output_tasks.set(job, args.outputs),
        windowed_tasks=_set(replica.windowed_tasks, job, args.windowed or None),
        stateful_jobs=replica.stateful_jobs.set(job, None)
        if args.stateful
        else replica.stateful_jobs,
        exempt_tasks=replica.exempt_tasks.set(job, args.exempt_tasks),
        acker_percentage=_set(replica.acker_percentage, job, args.acker_percentage),
        acker_exclude_inputs=_set(replica.acker_exclude_inputs, job, args.acker_exclude_inputs),
        acker_exclude_outputs=_set(replica.acker_exclude_outputs, job, args.acker_exclude_outputs),
        task_schedulers=replica.task_schedulers.set(job, args.task_scheduler),
        percentages=_set(replica.percentages, job, args.percentage if by_share else None),
        task_percentages=_set(
            replica.task_percentages,
            job,
            Map(args.task_percentages or {}) if tasks_by_share else None,
        ),
        saturation=replica.saturation.set(job, _limit(args.saturation)),
        task_saturation=replica.task_saturation.set(job, Map(limits)),
        min_required_peers=replica.min_required_peers.set(job, Map(args.min_required_peers or {})),
        flux_policies=replica.flux_policies.set(job, Map(args.flux_policies or {})),
        required_tags=replica.required_tags.set(job, Map(args.required_tags or {})),
    )


def _set(mapping: Map[JobId, V], job: JobId, value: V | None) -> Map[JobId, V]:
    return mapping if value is None else mapping.set(job, value)


def _limit(limit: Limit) -> float:
    return math.inf if limit is None else float(limit)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    submitted = args.id in new.jobs and args.id not in old.jobs
    return {"job": args.id} if submitted else {}


reactions = no_reactions
