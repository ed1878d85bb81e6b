"""submit-job: a job is known from now on; a known id changes nothing, so it is safe to repeat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from immutables import Map

from onyx.ids import GroupId, JobId, Position, TaskName
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "submit-job"
RESCHEDULES = True

Number = int | float | str | None
"""A count of peers; infinite as the text "Infinity", which JSON has no number for."""


class Args(Arguments, frozen=True):
    id: JobId
    tasks: tuple[TaskName, ...]
    task_scheduler: str
    inputs: tuple[TaskName, ...] | None = None
    outputs: tuple[TaskName, ...] | None = None
    exempt_tasks: tuple[TaskName, ...] | None = None
    acker_percentage: int | None = None
    acker_exclude_inputs: bool | None = None
    acker_exclude_outputs: bool | None = None
    saturation: Number = None
    task_saturation: dict[TaskName, Number] | None = None
    min_required_peers: dict[TaskName, int] | None = None
    flux_policies: dict[TaskName, str] | None = None
    required_tags: dict[TaskName, tuple[str, ...]] | None = None
    percentage: int | None = None
    task_percentages: dict[TaskName, int] | None = None
    digest: str = ""


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    job = args.id
    if job in replica.jobs or job in replica.completed_jobs or job in replica.killed_jobs:
        return replica
    changes: dict[str, Any] = {
        "tasks": args.tasks,
        "input_tasks": args.inputs or (),
        "output_tasks": args.outputs or (),
        "exempt_tasks": args.exempt_tasks or (),
        "acker_percentage": args.acker_percentage or 1,
        "acker_exclude_inputs": bool(args.acker_exclude_inputs),
        "acker_exclude_outputs": bool(args.acker_exclude_outputs),
        "task_schedulers": args.task_scheduler,
        "saturation": count(args.saturation),
        "task_saturation": Map({k: count(v) for k, v in (args.task_saturation or {}).items()}),
        "min_required_peers": Map(args.min_required_peers or {}),
        "flux_policies": Map(args.flux_policies or {}),
        "required_tags": Map(args.required_tags or {}),
        "job_digests": args.digest,
    }
    if replica.job_scheduler == "percentage" and args.percentage is not None:
        changes["percentages"] = args.percentage
    if args.task_scheduler == "percentage":
        changes["task_percentages"] = Map(args.task_percentages or {})
    stored = {name: getattr(replica, name).set(job, value) for name, value in changes.items()}
    return replace(replica, jobs=(*replica.jobs, job), **stored)


def count(value: Number) -> float:
    """A number of peers; infinite when none is given."""
    if value is None or value == "Infinity":
        return float("inf")
    return float(value)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"job": args.id} if new.jobs != old.jobs else {}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
