"""The old job that a job upgrades: its manifest, and what is carried over from it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import msgspec

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.model.parsing.mapping import stored_job
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.named_partitions import named_partitions
from onyx.upgrade.compatibility import windowed
from onyx.upgrade.plan import Plan
from onyx.upgrade.plan import plan as plan_of
from onyx.upgrade.translation import numbers


class OldJob(msgspec.Struct, frozen=True):
    """The old job that this one upgrades, and what is carried over from it."""

    id: JobId
    job: Job
    plan: Plan
    numbers: Mapping[int, int]
    """Partitions that are carried over: their numbers in this job by those in the old one."""
    has_more: bool
    """Whether this job has partitions of inputs that the old one does not have."""


def planned(runtime: Runtime) -> tuple[JobId, Job, Plan]:
    """Id and manifest of the old job, and what is carried over from it. Blocks.

    Raises:
        UserError: `onyx gc` has forgotten the old job, or this job cannot upgrade it.
    """
    replica, new = runtime.services.replica(), runtime.program.job
    job_id = replica.upgrades(runtime.job_id)
    assert job_id is not None, "only a job that upgrades another one comes here"
    digest = replica.digest_of(job_id)
    if digest is None or new.upgrade is None:
        raise UserError(
            f"job {runtime.job_id} cannot carry over the state of job {job_id}, which `onyx gc` "
            "has forgotten; submit it without `upgrade`, to begin anew"
        )
    old = stored_job(runtime.services.log.get_chunk(digest), job_id)
    plan = plan_of(old, new, new.upgrade)
    if plan.problems:
        raise UserError("\n".join(map(str, plan.problems)))
    return job_id, old, plan


def old_job(runtime: Runtime) -> OldJob:
    """Blocks. Raises like `planned`."""
    job_id, old, plan = planned(runtime)
    replica, log, new = runtime.services.replica(), runtime.services.log, runtime.program.job
    inputs, tasks = _inputs(new), windowed(new)
    carried = {name for name in inputs if plan.carries("input", name)}
    carried |= {name for name in tasks if plan.carries("task", name)}
    before = named_partitions(log, replica, job_id, carried)
    here = named_partitions(log, replica, runtime.job_id, {*inputs, *tasks})
    mapped = numbers(before, here)
    ranges = (range(here[name][0], here[name][0] + len(here[name][1])) for name in inputs)
    has_more = not set(chain.from_iterable(ranges)) <= set(mapped.values())
    return OldJob(job_id, old, plan, mapped, has_more)


def _inputs(job: Job) -> tuple[str, ...]:
    return tuple(entry.name for entry in job.catalog if entry.type == "input")
