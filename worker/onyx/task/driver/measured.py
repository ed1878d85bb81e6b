"""What is measured of a job on Spark: each task of it, by what its query has reported and what is
committed.

A micro-batch is complete when it is published, so its segments take from the moment at which it was
begun until then. How far an input is behind is asked of its plugin, of which the worker makes one
for this question alone. It is asked about the positions of the last commit, so a micro-batch that
is being read is behind too. A query over bounded inputs is one batch, and says what it has read
when it ends: of such a job only this is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from onyx.ids import TaskName
from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import may_be_endless
from onyx.model.workflow import parents
from onyx.plugins.protocol import Behind, Cursor, Input, MeasuredInput
from onyx.reports.measures import StateMeasures
from onyx.spark.driver.driver import Driver
from onyx.spark.driver.request import BucketState, Held
from onyx.task.measured import MeasuredPart, OpenPartition
from onyx.task.parts import Assignment
from onyx.task.plugin_context import context_of_driver
from onyx.telemetry.tallies import BatchTally

BOUNDED = "a query over bounded inputs says what it has read when it ends"
NOTHING_YET = "no micro-batch is committed yet"


class QueryInput:
    """An input of a query (`task.measured.PartSource`)."""

    retried = 0
    """A micro-batch that is run again publishes nothing twice, and counts once."""

    def __init__(self, driver: Driver, task: str, make: Callable[[], Input]) -> None:
        """`make`: gives the plugin of the input."""
        self._driver, self._task, self._make = driver, task, make
        self._plugin: Input | None = None

    @property
    def in_flight(self) -> int:
        """Segments of a micro-batch that is staged and not published."""
        return self._driver.in_flight(self._task)

    @property
    def completed(self) -> int:
        """Segments whose result is committed."""
        return self._driver.read.get(self._task, 0)

    @property
    def has_end(self) -> bool:
        """Whether it ends some day, as its plugin and options say."""
        entry = next(each for each in self._driver.job.catalog if each.name == self._task)
        return not may_be_endless(entry.plugin or "", entry.options)

    @property
    def tasks(self) -> int | None:
        """Tasks of the query, if its inputs are bounded and Spark has said some."""
        return None if self._driver.request.endless else self._driver.spark.tasks or None

    @property
    def done(self) -> int:
        """Positions that are committed; of bounded inputs, tasks of Spark."""
        if not self._driver.request.endless:
            return self._driver.spark.tasks_done
        committed = self._driver.committed
        positions = () if committed is None else committed.positions
        return sum(each.position for each in positions if each.task == self._task)

    @property
    def unknown(self) -> str:
        """Why nobody can know now how far it is."""
        if not self._driver.request.endless:
            return BOUNDED
        committed = self._driver.committed
        known = committed is not None and any(
            each.task == self._task for each in committed.positions
        )
        return "" if known else NOTHING_YET

    @property
    def behind(self) -> Callable[[Mapping[str, Cursor]], Mapping[str, Behind]] | None:
        """Asks a plugin that reads nothing."""
        return None if self.unknown else self._ask

    def oldest_open_s(self, now_s: float) -> float | None:
        """Since when the micro-batch runs that is not published; None without one."""
        begun_s = self._driver.begun_s
        return None if begun_s is None else now_s - begun_s

    def opened(self) -> list[OpenPartition]:
        """The partitions that are committed, and have not ended."""
        committed = self._driver.committed
        return [
            OpenPartition(
                each.name, each.position, Cursor(each.cursor, each.state), newest_ms=each.newest_ms
            )
            for each in (() if committed is None else committed.positions)
            if each.task == self._task and not each.exhausted
        ]

    def close(self) -> None:
        """Close the plugin, if anybody has asked it."""
        if self._plugin is not None:
            self._plugin.close()

    def _ask(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        if self._plugin is None:
            self._plugin = self._make()
        return self._plugin.behind(cursors) if isinstance(self._plugin, MeasuredInput) else {}


def inputs_of(assignment: Assignment, driver: Driver) -> dict[str, QueryInput]:
    """The inputs of a query, by their names."""

    def made(entry: CatalogEntry) -> Input:
        assert entry.plugin is not None, "validated: inputs name a plugin"
        context = context_of_driver(assignment, driver.job_id, driver.job, entry)
        return assignment.services.build_input(entry.plugin, context)

    return {
        entry.name: QueryInput(driver, entry.name, partial(made, entry))
        for entry in driver.job.catalog
        if entry.type == "input"
    }


def parts_of(driver: Driver, inputs: Mapping[str, QueryInput]) -> list[MeasuredPart]:
    """The tasks of a query."""
    held = Held() if driver.committed is None else driver.committed.held
    tallies = driver.counts.tallies()
    sent = edges_passed(driver.job, tallies)
    found = []
    for task, tally in tallies.items():
        state, buckets = None, held.of(task, None)
        if buckets:
            due = [each.due_ms for each in buckets if each.due_ms is not None]
            size = sum(size for each in buckets for _, size in each.files)
            state = StateMeasures(size, next_timer_ms=min(due, default=None))
        found.append(
            MeasuredPart(
                TaskName(task), tally, inputs.get(task), of_query=True,
                counted=driver.request.endless, state=state, sent=sent.get(task, {}),
                watermark_ms=_watermark_ms(buckets),
            )
        )  # fmt: skip
    return found


def edges_passed(
    job: Job, tallies: Mapping[str, BatchTally | None]
) -> dict[str, dict[TaskName, int]]:
    """What has passed each edge, by the task that sends. A query counts tasks: what a task has
    read has come from its only parent, and one without flow conditions sends all to each child. Of
    other edges nobody knows it."""
    above = parents(job.workflow)
    choosing = {name for each in job.flow_conditions for name in each.from_tasks}
    found: dict[str, dict[TaskName, int]] = {}
    for source, target in job.workflow:
        sends, reads = tallies.get(source), tallies.get(target)
        if len(above[target]) == 1 and reads is not None:
            found.setdefault(source, {})[TaskName(target)] = int(reads.size.total)
        elif sends is not None and choosing.isdisjoint({source, "all"}):
            found.setdefault(source, {})[TaskName(target)] = sends.written
    return found


def _watermark_ms(buckets: Collection[BucketState]) -> int | None:
    """The event time that all buckets of a task have sent on, but those that hold nothing back."""
    marks = [each.passed_on for each in buckets if not (each.over or each.idle)]
    known = [each for each in marks if each is not None]
    return min(known) if known and len(known) == len(marks) else None
