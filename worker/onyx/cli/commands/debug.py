"""`onyx debug`: one task of a job over segments of a file, in this process, in the debugger."""

from __future__ import annotations

import pdb
import sys
from bdb import BdbQuit
from pathlib import Path
from typing import Annotated

from onyx.base.on_demand import ModuleOnDemand
from onyx.cli.command_line import Option
from onyx.cli.job_file import FileArgument
from onyx.cli.options import ModulesOption
from onyx.cli.segment_lines import read_batches
from onyx.client import failure_text
from onyx.errors import UserError
from onyx.flow.batch import Batch, segment_at
from onyx.ids import JobId
from onyx.model.job import CatalogEntry, Job
from onyx.model.report import listed
from onyx.program.batch_work import BatchWork
from onyx.program.failure import Failure
from onyx.program.phases import Phase
from onyx.user_code.resolve import Resolver

alone = ModuleOnDemand("onyx.bundle.alone")
local_run = ModuleOnDemand("onyx.cli.local_run")
BATCH_SEGMENTS = 1_000
"""The batch of a task that gives no size."""


def debug(
    file: FileArgument,
    task: Annotated[str, Option("--task", "Name of the task.")],
    segments: Annotated[Path, Option("--segment", "JSON Lines that it gets.", metavar="FILE")],
    modules: ModulesOption = None,
) -> None:
    """Run one task of a job over the segments of a file, in this process, and enter the debugger
    where its code raises; a failure that a dead letter or a condition takes care of is one too.

    Nothing is read from an input, written or sent. State begins empty. breakpoint() works in all
    functions. Ends with 0 when all segments pass, and with 1 at the first that fails.
    """
    job, found = local_run.checked(file, modules, None, None)
    entry = _entry(job, task)
    resolver = Resolver(found.modules)
    lone = alone.LoneTask(
        JobId(job.name), job, entry, resolver.resolve, found.fn_params.get(task, ())
    )
    taken = made = 0
    for segments_of_batch in read_batches(segments, entry.batch_size or BATCH_SEGMENTS):
        work = BatchWork(Batch(segments_of_batch))
        failure = lone.run(work) or _handled(work)
        if failure is not None:
            _enter(job, task, failure)
        taken, made = taken + len(segments_of_batch), made + work.results
    print(f"task {task}: {taken:,} segments pass, it makes {made:,} of them")


def _entry(job: Job, task: str) -> CatalogEntry:
    """Raises:
    UserError: there is no such task, or it cannot work alone.
    """
    entry = next((each for each in job.catalog if each.name == task), None)
    if entry is None:
        names = listed(each.name for each in job.catalog)
        raise UserError(f"job {job.name} has no task {task}: it has {names}")
    why = "it makes segments, and gets none" if entry.type == "input" else ""
    if entry.left:
        why = "it joins two streams, and the file is one"
    if why := why or alone.why_not_alone(job, entry):
        raise UserError(f"task {task} cannot be debugged alone: {why}")
    return entry


def _handled(work: BatchWork) -> Failure | None:
    """The first failure of the function that does not end the job."""
    failures = [] if work.leaves is None else work.leaves.failures
    if work.batch is None or not failures:
        return None
    index, error = failures[0]
    return Failure(
        Phase.APPLY_FN.value, error, segment=segment_at(work.batch.segments, index), index=index
    )


def _enter(job: Job, task: str, failure: Failure) -> None:
    """Say what has failed, and enter the debugger there."""
    if not isinstance(failure.error, BdbQuit):
        print(failure_text.whole(alone.said(JobId(job.name), task, failure)), flush=True)
        pdb.post_mortem(alone.raised(failure.error).__traceback__)
    sys.exit(1)
