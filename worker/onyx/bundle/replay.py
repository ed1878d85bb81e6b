"""Runs the batch at which a job has failed once more, in this process: no cluster, no ZooKeeper.

Its task works alone (`alone`), made of the manifest in the bundle and of functions of this machine,
without a state, because a bundle has none.

The manifest is somebody else's. What it names is looked up in the modules that whoever replays has
listed, and in no others; plugins are not made, and no table is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onyx.base.structs import stored
from onyx.bundle.alone import PHASES, LoneTask, Resolve, said, why_not_alone
from onyx.bundle.bundle_file import JobBundle
from onyx.bundle.bundled_log import client_of
from onyx.client.reports import exception
from onyx.errors import UserError
from onyx.flow.batch import Batch, Segments
from onyx.ids import JobId
from onyx.log import documents
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.mapping import stored_job
from onyx.model.workflow import stateful_tasks
from onyx.program.batch_work import BatchWork
from onyx.program.failed_batch import FailedBatch, segments_of
from onyx.program.failure import Failure


class FailedTask(msgspec.Struct, frozen=True):
    """What a bundle says of the failure of a job."""

    id: JobId
    job: Job
    entry: CatalogEntry
    report: Mapping[str, Any]
    """What the task has stored."""
    batch: FailedBatch
    segments: Segments

    @property
    def has_state(self) -> bool:
        """Whether the task keeps something between two batches."""
        return self.entry.name in stateful_tasks(self.job)


def failed_task(bundle: JobBundle) -> FailedTask:
    """The task that has killed the job of a bundle, with its batch.

    Raises:
        UserError: there is none that could be run here; the message says why, and what to do.
    """
    job_id = JobId(bundle.head.job)
    client = client_of(bundle)
    replica, found = client.replica(), exception(client.log, job_id)
    if found is None:
        if job_id in replica.completed_jobs:
            why = "it has completed"
        elif job_id in replica.killed_jobs:
            why = "it was killed, and by no task"
        else:
            why = "it had not ended when the bundle was made"
        raise UserError(f"job {job_id} has no failure to be replayed: {why}")
    manifest = bundle.chunks.get(replica.digest_of(job_id) or "")
    if manifest is None:
        raise UserError(f"the bundle does not have the manifest of job {job_id}")
    job, task = stored_job(manifest, job_id), str(found.get("task", ""))
    entry = next((each for each in job.catalog if each.name == task), None)
    if entry is None:
        raise UserError(f"job {job_id} failed in {task!r}, which is no task of its manifest")
    refusal = why_not(job, entry, str(found.get("phase", "")))
    if refusal:
        raise UserError(f"task {task} cannot be replayed: {refusal}")
    kept = bundle.documents.get(documents.failed_batch(job_id))
    if kept is None:
        raise UserError(f"task {task} cannot be replayed: {_without_batch(bundle)}")
    what = f"the failed batch of job {job_id}"
    batch = stored(kept.data, FailedBatch, what, "make the bundle again")
    return FailedTask(job_id, job, entry, found, batch, segments_of(batch))


def why_not(job: Job, entry: CatalogEntry, phase: str) -> str:
    """Why what a task did in a phase cannot be done here; empty if it can."""
    if phase not in PHASES:
        return f"it failed in {phase}, which works on no batch or with what is outside of the job"
    return why_not_alone(job, entry)


def _without_batch(bundle: JobBundle) -> str:
    if not bundle.head.values:
        return (
            "the bundle has no segments: make it again with `onyx bundle JOB --values`, as long as "
            "the cluster knows the job (after `onyx run --keep FOLDER` with --kept FOLDER)"
        )
    return (
        "its batch was not kept: the owner of the worker has it so (ONYX_TASK_REPORT_VALUES), or "
        "one segment is larger than what is kept"
    )


# --- the replay, then and now ---------------------------------------------------------------------


def replay(failed: FailedTask, resolve: Resolve, fn_params: Sequence[Any] = ()) -> Failure | None:
    """Run the batch; what fails of it now, or None. Arguments and errors as of `LoneTask`."""
    task = LoneTask(failed.id, failed.job, failed.entry, resolve, fn_params)
    return task.run(BatchWork(Batch(failed.segments, upstream=failed.batch.upstream)))


def said_now(failed: FailedTask, failure: Failure) -> dict[str, Any]:
    """The report of what has failed here."""
    return said(failed.id, failed.entry.name, failure)


def is_same(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two reports are about the same exception: of one type, with one message or from one
    place. A message may have an address or a time in it, and a place moves when code is mended."""
    if then.get("type") != now.get("type"):
        return False
    return then.get("message") == now.get("message") or (_place(then) == _place(now) != ("", ""))


def _place(found: Mapping[str, Any]) -> tuple[str, str]:
    frames = [frame for error in found.get("errors", ())[:1] for frame in error.get("frames", ())]
    last = frames[-1] if frames else {}
    return str(last.get("function", "")), str(last.get("code", ""))
