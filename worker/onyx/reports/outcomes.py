"""What became of the segments of a task, as counts, and what to say of those that did not go on.

A job can complete with every segment in the dead letters, dropped because no flow condition holds,
or dropped because it came late. That is what the job says, so it is no error; whoever looks at the
job must see it all the same. `remarks` says it for `onyx run`, `onyx jobs` and programs alike.

A count is of what happened, and not of segments: what is read again counts again, and what a worker
had not reported when it was lost does not count. A remark says when that may be so.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from onyx.base.structs import prepared
from onyx.ids import GroupId, TaskName
from onyx.model.plugins import returns_failures, takes_requests

if TYPE_CHECKING:  # `onyx jobs` says what became of segments without parsing a job
    from onyx.model.job import Job


@prepared
class TaskTotals(msgspec.Struct, frozen=True):
    """Counts of one task, over all of its peers. What is replayed counts again."""

    segments_in: int = 0
    segments_out: int = 0
    completed: int = 0
    retried: int = 0
    errors: int = 0
    dead_letters: int = 0
    unmatched: int = 0
    """Segments for which no flow condition holds."""
    late: int = 0
    answered: int = 0
    """Segments that failed for good, as the answers to their requests say or their queue has
    heard."""
    taken_over: int = 0
    """Segments of an input that an owner of the partition before this one may have sent already."""
    without_row: int = 0
    """Segments for which a join has found nothing."""
    first_dead_letter: str = ""
    """The error of the first."""
    first_unmatched: str = ""
    """What the first lacks, as far as that is known."""
    first_answered: str = ""
    """The error of the first."""

    def __add__(self, other: TaskTotals) -> TaskTotals:
        return self._with(other, 1)

    def since(self, before: TaskTotals) -> TaskTotals:
        """What was counted since an earlier count."""
        return self._with(before, -1)

    @property
    def remarkable(self) -> bool:
        """Whether there is something to say of them."""
        return any(self.said)

    @property
    def said(self) -> tuple[int, ...]:
        """What is said of them; segments that go on change all the time."""
        counts = (self.dead_letters, self.unmatched, self.late, self.answered)
        return (*counts, self.repeated, self.finds_nothing)

    @property
    def finds_nothing(self) -> bool:
        """Whether a join has found nothing for any segment. That some have no row is usual, and
        said of none; a key that is misspelled shows nowhere else."""
        return 0 < self.segments_in <= self.without_row

    @property
    def repeated(self) -> bool:
        """Whether segments may have been read twice, so that they count twice everywhere."""
        return self.retried > 0 or self.taken_over > 0

    def _with(self, other: TaskTotals, sign: int) -> TaskTotals:
        return TaskTotals(
            self.segments_in + sign * other.segments_in,
            self.segments_out + sign * other.segments_out,
            self.completed + sign * other.completed,
            self.retried + sign * other.retried,
            self.errors + sign * other.errors,
            self.dead_letters + sign * other.dead_letters,
            self.unmatched + sign * other.unmatched,
            self.late + sign * other.late,
            self.answered + sign * other.answered,
            self.taken_over + sign * other.taken_over,
            self.without_row + sign * other.without_row,
            self.first_dead_letter or other.first_dead_letter,
            self.first_unmatched or other.first_unmatched,
            self.first_answered or other.first_answered,
        )


NOTHING = TaskTotals()


@prepared
class OutcomeReport(msgspec.Struct, frozen=True):
    """What the worker processes under one supervisor have counted of a job."""

    group: GroupId
    """Who has written it."""
    working: bool
    """Whether the group had tasks of the job then: if it is lost, so is what it counted since."""
    tasks: dict[TaskName, TaskTotals]


def remarks(
    job: Job,
    totals: Mapping[str, TaskTotals],
    lost: bool = False,
    unwritten: Container[str] = (),
) -> list[str]:
    """A line for each task and each way in which segments of it did not go on.

    Args:
        lost: what a worker has counted may be missing.
        unwritten: outputs that have published nothing of a job that has ended early.
    """
    used = [entry.name for entry in job.catalog]
    exact = not lost and not any(totals.get(task, NOTHING).repeated for task in used)
    about = "" if exact else "about "
    each = ((task, totals.get(task, NOTHING)) for task in used)
    lines = (line for task, its in each for line in _of_task(job, task, its, unwritten))
    return [about + line for line in lines]


def all_failed(job: Job, totals: Mapping[str, TaskTotals]) -> list[str]:
    """The tasks of which every segment went to dead letters, if no output has got another one.

    Such a job completes, but nothing came of it. Where an output holds something, a task that has
    failed for all of its few segments may be as it should.
    """
    apart = {entry.dead_letter for entry in job.catalog}
    apart = apart.union(*(job.late_children(entry.name) for entry in job.catalog))
    outputs = (entry.name for entry in job.catalog if entry.type == "output")
    taken = (totals.get(name, NOTHING) for name in outputs if name not in apart)
    if any(max(each.segments_in, each.segments_out) > each.dead_letters for each in taken):
        return []
    used = ((entry.name, totals.get(entry.name, NOTHING)) for entry in job.catalog)
    return [name for name, its in used if its.dead_letters >= max(its.segments_in, 1)]


def made_nothing(job: Job, totals: Mapping[str, TaskTotals]) -> list[str]:
    """A line for each function that made nothing of any segment, though none has failed: a
    `return` that is missing shows nowhere else; and for each join of streams. What waits in state
    or windows is not meant."""
    parents = {parent for parent, _ in job.workflow}
    keeping = {window.task for window in job.windows}
    lines = []
    for entry in job.catalog:
        its = totals.get(entry.name, NOTHING)
        fn = entry.fn if entry.type == "function" and entry.state is None else None
        went = its.segments_out or its.errors or its.remarkable
        if fn is not None and its.segments_in and not went and entry.name in parents - keeping:
            took = f"{entry.name} took {segments_in_words(its.segments_in)} and made none"
            goes_on = f"what {fn} returns goes on, and None is nothing"
            lines.append(f"{took}: {goes_on}; did {fn.partition(':')[2]} forget its return?")
        if entry.type == "join" and its.segments_in and not went:
            lines.append(f"{entry.name} joined none of its {segments_in_words(its.segments_in)}")
    return lines


def _of_task(job: Job, task: str, its: TaskTotals, unwritten: Container[str]) -> Iterator[str]:
    if its.dead_letters:
        to = job.entry(task).dead_letter or "dead letters"
        to += " (letters not written: the job ended first)" if to in unwritten else ""
        first = f"; first error: {its.first_dead_letter}" if its.first_dead_letter else ""
        yield f"{_of(its.dead_letters, its.segments_in)} of {task} went to {to}{first}"
    if its.answered:
        first = f"; first error: {its.first_answered}" if its.first_answered else ""
        count = _of(its.answered, its.segments_in)
        yield f"{count} of {task} failed, {_said(job)}{first}"
    if its.unmatched:
        first = f"; {its.first_unmatched}" if its.first_unmatched else ""
        count = _of(its.unmatched, its.segments_in)
        yield f"{count} of {task} matched no flow condition and went nowhere{first}"
    if its.finds_nothing:
        join = job.entry(task).join
        where = f" in {join.table or join.state}" if join is not None else ""
        yield f"{_of(its.without_row, its.segments_in)} of {task} found no row{where}"
    if its.late:
        to = ", ".join(sorted(job.late_children(task)))
        nowhere = "met nothing" if job.entry(task).type == "join" else "counted in no window"
        where = f"went to {to}" if to else nowhere
        yield f"{segments_in_words(its.late)} of {task} came late and {where}"


def _said(job: Job) -> str:
    """Who has heard of segments that failed for good."""
    requests = any(takes_requests(each.type, each.plugin) for each in job.catalog)
    queues = any(returns_failures(each.type, each.plugin, each.options) for each in job.catalog)
    if not queues:
        return "as the answers to their requests say"
    return "as their queue has heard" + (", or the answers to their requests say" * requests)


def _of(some: int, every: int) -> str:
    """A batch is counted when it is done, later than what failed of it; and a function may make
    several segments of one."""
    return f"{some:,} of {max(some, every):,} segments"


def segments_in_words(segments: int) -> str:
    return f"{segments:,} segment{'' if segments == 1 else 's'}"
