"""`onyx debug`: one task of a job over segments of a file, in this process, in the debugger."""

from __future__ import annotations

import pdb
import sys
from bdb import BdbQuit
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

from onyx.base.on_demand import ModuleOnDemand
from onyx.cli.command_line import Option
from onyx.cli.job_file import FileArgument
from onyx.cli.options import ModulesOption
from onyx.cli.segment_lines import read_batches
from onyx.client import failure_text
from onyx.errors import SegmentError, UserError
from onyx.flow.batch import Batch, segment_at
from onyx.flow.segment import Segment
from onyx.ids import JobId
from onyx.model.job import CatalogEntry, Job
from onyx.model.report import listed
from onyx.program.batch_work import BatchWork
from onyx.program.failure import Failure
from onyx.program.phases import Phase
from onyx.user_code.resolve import Resolver

letters = ModuleOnDemand("onyx.client.redrive.letters")
alone = ModuleOnDemand("onyx.bundle.alone")
local_run = ModuleOnDemand("onyx.cli.local_run")
BATCH_SEGMENTS = 1_000
"""The batch of a task that gives no size."""
SHOWN_MAX = 20
"""Reasons to leave letters that people see."""


def debug(
    file: FileArgument,
    task: Annotated[str, Option("--task", "Name of the task.")],
    segments: Annotated[Path, Option("--segment", "JSON Lines that it gets.", metavar="FILE")],
    modules: ModulesOption = None,
) -> None:
    """Run one task of a job over the segments of a file, in this process, and enter the debugger
    where its code raises; a failure that a dead letter or a condition takes care of is one too.

    Of a file with dead letters it gets the segments of those that are its own. Nothing is read from
    an input, written or sent. State begins empty. breakpoint() works in all functions. Ends with 0
    when all segments pass, and with 1 at the first that fails.
    """
    job, found = local_run.checked(file, modules, None, None)
    entry = _entry(job, task)
    resolver = Resolver(found.modules)
    lone = alone.LoneTask(
        JobId(job.name), job, entry, resolver.resolve, found.fn_params.get(task, ())
    )
    taken = made = 0
    given = _Given(segments, task)
    for segments_of_batch in given.batches(entry.batch_size or BATCH_SEGMENTS):
        work = BatchWork(Batch(segments_of_batch))
        failure = lone.run(work) or _handled(work)
        if failure is not None:
            _enter(job, task, failure)
        taken, made = taken + len(segments_of_batch), made + work.results
    for why, count in given.left.most_common(SHOWN_MAX):
        print(f"  {count:>9,}  left: {why}")
    if given.left and not taken:
        raise UserError(f"{segments} has no segment of task {task}")
    print(f"task {task}: {taken:,} segments pass, it makes {made:,} of them")


class _Given:
    """The segments of a file; of dead letters, which somebody has in the first place, those of the
    task as it had them."""

    def __init__(self, file: Path, task: str) -> None:
        self._file, self._choice = file, letters.LetterChoice(task)
        self._has_letters = False
        self.left = Counter[str]()
        """Why letters are left, and how many."""

    def batches(self, size: int) -> Iterator[list[Segment]]:
        """Raises UserError, as `read_batches`."""
        rows = chain.from_iterable(read_batches(self._file, size))
        found = (each for row in rows if (each := self._segment(row)) is not None)
        while segments := list(islice(found, size)):
            yield segments

    def _segment(self, row: Segment) -> Segment | None:
        letter = letters.stored(row, str(self._file), 0)
        if letter is None:
            return row
        if not self._has_letters:
            self._has_letters = True
            of = f"task {self._choice.task} gets the segments of its own"
            print(f"{self._file} has dead letters: {of}", flush=True)
        why = self._choice.why_not(letter.letter)
        try:
            if not why:
                segment: Segment = letter.segment()
                return segment
        except SegmentError as error:
            why = str(error)
        self.left[why] += 1
        return None


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
