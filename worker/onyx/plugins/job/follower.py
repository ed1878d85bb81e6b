"""Reads the journal of an input of another job: what that input has taken, whether the other job
has processed it or not.

The positions are those of the journal, so whoever goes on here needs no list of its own. An upgrade
of the other job goes on in its journal with the same positions, in a folder of its own. So versions
are read one after the other: a version that has ended and has no more is left for the next one,
which has everything behind that.

Nobody is told who follows. What is not kept any more when a follower comes to it is an error that
names its position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import pyarrow as pa

from onyx.base.structs import prepared
from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Segments
from onyx.flow.segment import Segment
from onyx.ids import JobId
from onyx.journal.depot import Gone
from onyx.journal.logs import PartitionFolder
from onyx.journal.view import Block, JournalBounds, JournalView
from onyx.plugins.job.options import JobOptions
from onyx.plugins.journalled.reader import JournalReader
from onyx.plugins.protocol import Behind, Cursor, JobJournal, PluginContext
from onyx.plugins.segment_runs import gathered
from onyx.plugins.starting import position_in, read_start


@prepared
class FollowerState(msgspec.Struct, frozen=True):
    """The state of a cursor."""

    journal: str
    """The job that began the journal; empty before something was in it."""
    jobs: tuple[str, ...]
    """The versions that are known, the oldest first."""
    partitions: int
    """How many the journal has, all of which are followed."""


class JournalFollower(JournalReader):
    """A partition of the journal."""

    def __init__(
        self, context: PluginContext, options: JobOptions, partition: str, cursor: Cursor
    ) -> None:
        """`partition` is its number."""
        super().__init__(
            self, cursor.position, self._next_runs, lambda: self._position, cursor.state
        )
        self._context = context
        self._options = options
        self._number = int(partition)
        self._followed = msgspec.convert(cursor.state, FollowerState)
        self._job = self._followed.jobs[0]
        self._view = self._view_of(self._job)
        self._next_s = context.clock.monotonic_s()
        self._flows = True
        """Whether there was something at the last look."""
        self._ended = False
        self._complete = cursor.position
        """The greatest position of which a cursor was asked."""
        self._obstacle = ""

    def read(self, segments_max: int) -> list[Segment]:
        """What the other job has taken, as far as it is there."""
        found = super().read(segments_max)
        self._tell_obstacle(bool(found))
        return found

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """The next segments of one kind."""
        found = super().read_columns(segments_max)
        self._tell_obstacle(bool(len(found)))
        return found

    def ready(self) -> int:
        """Segments that are there and wait to be read."""
        return len(self._held)

    def obstacle(self) -> str:
        """Why nothing more comes for now. Safe from any thread."""
        return self._obstacle

    def first_of(self, position: int) -> int:
        """The position itself: a journal is read from anywhere."""
        return position

    def exhausted(self) -> bool:
        """Whether the other job has completed, and everything was read."""
        return self._ended and not self.ready()

    def cursor(self, position: int) -> Cursor:
        """The position itself, and which versions are known."""
        self._complete = position
        self._state = msgspec.to_builtins(self._followed)
        return super().cursor(position)

    def _tell_obstacle(self, found: bool) -> None:
        # What is in flight ends first: a task that cannot read does nothing else either.
        if not found and self._obstacle and self._complete >= self._position:
            raise Unavailable(self._obstacle)

    def _next_runs(self, position: int) -> tuple[int, list[Segments]] | None:
        """Looks at once while there is something, and then now and then. What becomes of the job is
        asked before a look: then a job that has completed has nothing behind what is found."""
        now_s = self._context.clock.monotonic_s()
        if self._ended or now_s < self._next_s:
            return None
        journal = None
        if not self._flows:
            self._next_s = now_s + self._options.poll_seconds
            journal = self._asked()
            if journal is None:
                return None
        block = self._look(position, asked=journal is not None)
        self._flows = block is not None
        if block is not None:
            self._obstacle, self._next_s = "", now_s
            return block.first, gathered(block.runs())
        if journal is not None and not self._obstacle:
            self._obstacle = self._options.no_more(self._context, journal.state)
            if journal.state == "completed":
                self._view.check_whole()
                self._ended = True
        return None

    def _asked(self) -> JobJournal | None:
        """The journal as it is now; None: nobody says it now."""
        options, known = self._options, self._followed
        try:
            journal = self._context.journal_of(options.job, options.task, known.jobs)
        except Unavailable as error:
            self._obstacle = f"{self._context.where}: {error}"
            return None
        if journal is None:
            raise UserError(
                f"{self._context.where}: the job that upgrades job {known.jobs[-1]} has no input "
                f"{options.task} any more, whose journal could go on"
            )
        options.check_another(self._context, journal.jobs)
        if journal.partitions not in (None, known.partitions):
            raise UserError(
                f"{self._context.where}: input {options.task} of job {journal.jobs[-1]} has "
                f"{journal.partitions} partitions, and {known.partitions} are followed: submit "
                "this job again, in place of itself with initialize for this input"
            )
        self._obstacle = ""
        self._followed = FollowerState(known.journal, journal.jobs, known.partitions)
        return journal

    def _look(self, position: int, asked: bool) -> Block | None:
        """What has a position, in whichever version; None: there is nothing yet."""
        while True:
            last = self._job == self._followed.jobs[-1]
            block = None
            try:
                block = self._view.read(position)
            except Gone as error:  # a version that is forgotten goes file by file
                if last and asked:
                    raise UserError(f"{self._context.where}: {error}") from error
            if block is not None and self._is_same(block):
                return block
            if last:
                return None
            jobs = self._followed.jobs
            self._job = jobs[jobs.index(self._job) + 1 if self._job in jobs else 0]
            self._view = self._view_of(self._job)

    def _is_same(self, block: Block) -> bool:
        known = self._followed
        if not known.journal:
            self._followed = FollowerState(block.origin, known.jobs, known.partitions)
        elif block.origin != known.journal:
            self._obstacle = (
                f"{self._context.where}: all is read of the journal of job {known.journal}, and "
                f"job {self._job} has begun another one: submit this job again, or drain it"
            )
            return False
        return True

    def _view_of(self, job: str) -> JournalView:
        return view_of(self._context, self._options.task, self._number, job)


def follows_journal(cursor: Cursor) -> bool:
    """Whether this is a cursor of a journal, and not of parts."""
    return "journal" in (cursor.state or {})


def view_of(context: PluginContext, task: str, number: int, job: str) -> JournalView:
    """A partition of the journal of an input, as a version of its job has it."""
    return JournalView(context.durable_store(), PartitionFolder(JobId(job), task, number))


def segments_behind(
    context: PluginContext, options: JobOptions, cursors: Mapping[str, Cursor]
) -> dict[str, Behind]:
    """What the newest version that is known has in its journal behind these cursors. Blocks."""
    found = {}
    for partition, cursor in cursors.items():
        job = msgspec.convert(cursor.state, FollowerState).jobs[-1]
        end = view_of(context, options.task, int(partition), job).bounds().end
        found[partition] = Behind(max(0, end - cursor.position))
    return found


def first_position(
    context: PluginContext, options: JobOptions, partition: str, journal: JobJournal
) -> Cursor:
    """Where a partition is read first: what versions have that go on in one journal is one."""
    views = [view_of(context, options.task, int(partition), job) for job in journal.jobs]
    over = journal.state == "completed"
    found = [(view, view.bounds(over)) for view in views]
    origin = next((bounds.origin for _, bounds in reversed(found) if bounds.origin), "")
    same = [(view, bounds) for view, bounds in found if bounds.origin == origin]
    whole = JournalBounds(
        min(bounds.first for _, bounds in same), max(bounds.end for _, bounds in same), origin
    )
    position = position_in(
        whole,
        read_start(options.start_from),
        partition,
        context.clock.wall_ms(),
        partial(_since, same, whole.end),
    )
    state = FollowerState(origin, journal.jobs, journal.partitions or 1)
    return Cursor(position, msgspec.to_builtins(state))


def _since(views: Sequence[tuple[JournalView, JournalBounds]], end: int, wall_ms: int) -> int:
    for view, bounds in views:
        position = view.since(wall_ms)
        if position < bounds.end:
            return position
    return end
