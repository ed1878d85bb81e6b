"""The plan of a job on Spark: values that can be compared, and printed for `onyx plan`.

A plan is a row of fragments. A fragment is a function that Spark runs once a partition: it begins
with inputs, or with segments that were shuffled to it, and passes them through a tree of tasks
without leaving Python. Where a task needs all segments of a group, the fragment ends in a shuffle,
and that task begins a later fragment. So a job without windows and groups is one fragment.

A Spark stage of the user in the middle (`sparkStage`) is a barrier: all fragments of the plan above
it are done, and their rows fixed, before it runs, and its own rows begin a later fragment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from onyx.model.job import CatalogEntry, Job
from onyx.model.workflow import children, looked_up


class PlannedWindow(msgspec.Struct, frozen=True):
    """A window, and where it is folded."""

    id: str
    type: str
    aggregation: str
    combined: bool
    """Whether it is folded before the shuffle, and states are merged behind it."""
    reason: str = ""
    """Why it is not."""


class Exchange(msgspec.Struct, frozen=True):
    """A shuffle: all segments of a group come to one bucket, where their task begins a fragment."""

    task: str
    fragment: int
    key: str | None
    """What segments are grouped by; None: nothing, so one bucket has them all."""
    windows: tuple[PlannedWindow, ...] = ()
    watermarks: Literal["none", "segments", "batches"] = "none"
    """What carries event time to it. `segments`: it comes with them. `batches`: every batch of the
    source says it to every bucket, because windows drop what is late."""
    ends: bool = False
    """Whether every bucket hears where each of its origins ends, in the query or in a micro-batch:
    windows fire then, state is kept, and of a micro-batch is checked that nothing is missing."""
    apart: tuple[str, ...] = ()
    """Tasks upstream that it keeps apart. Rows say from which of them they are."""
    always: bool = False
    """Whether it has something to do at the end even if nothing has come."""

    @property
    def combined(self) -> bool:
        """Whether states instead of segments are shuffled."""
        return bool(self.windows) and all(each.combined for each in self.windows)


class Middle(msgspec.Struct, frozen=True):
    """A task that runs a Spark stage of the user over all that comes to it."""

    task: str
    fragment: int
    """That its rows begin. All before it are done when it runs."""
    function: str
    upstream: tuple[str, ...]
    """Tasks that send to it; each is a DataFrame."""


class PlannedOutput(msgspec.Struct, frozen=True):
    """A task that writes."""

    task: str
    plugin: str
    how: Literal["staged", "spooled", "called", "dropped"]
    """`staged`: as parts that the worker publishes at the end, or behind each micro-batch.
    `spooled`: to files, which the worker writes with the plugin then. `called`: at once, by the
    fragment."""


class Fragment(msgspec.Struct, frozen=True):
    """What Spark runs between two shuffles."""

    number: int
    begins: tuple[str, ...]
    """Inputs in fragment 0, in later ones tasks behind a shuffle and those of a Spark stage."""
    tasks: tuple[str, ...]
    """All tasks that it runs, parents first. A task may be in several fragments."""


class Plan(msgspec.Struct, frozen=True):
    """How Spark runs a job."""

    job: str
    fragments: tuple[Fragment, ...]
    exchanges: tuple[Exchange, ...]
    """In the order of their fragments."""
    outputs: tuple[PlannedOutput, ...]
    unbounded: bool = False
    """Whether an input may have no end, so that the query runs in micro-batches."""
    middles: tuple[Middle, ...] = ()
    """In the order of their fragments."""

    def exchange(self, task: str) -> Exchange | None:
        """The shuffle before a task; None if there is none."""
        return next((each for each in self.exchanges if each.task == task), None)

    def middle(self, task: str) -> Middle | None:
        """The Spark stage of a task; None if it has none."""
        return next((each for each in self.middles if each.task == task), None)

    @property
    def pieces(self) -> tuple[range, ...]:
        """Numbers of the fragments that Spark runs at once: between two barriers."""
        barriers = sorted({each.fragment for each in self.middles})
        begins, ends = (0, *barriers), (*barriers, len(self.fragments))
        return tuple(map(range, begins, ends))


_HOW = {
    "staged": "staged, and published by the worker {when}",
    "spooled": "spooled, and written by the worker {when}",
    "called": "called by the fragment",
    "dropped": "dropped",
}


def render(plan: Plan, job: Job) -> str:
    """The plan as lines, each task indented below the one that feeds it."""
    many = f"{len(plan.fragments)} fragment{'s' if len(plan.fragments) > 1 else ''}"
    kind = "streaming query, each micro-batch" if plan.unbounded else "batch query"
    if plan.middles:
        many += f", in {len(plan.pieces)} parts"
    return "\n".join([f"job {plan.job} on Spark: one {kind} of {many}", *_Lines(plan, job).all()])


class _Lines:
    def __init__(self, plan: Plan, job: Job) -> None:
        self._plan = plan
        self._job = job
        self._below = children(job.workflow)
        self._outputs = {each.task: each for each in plan.outputs}

    def all(self) -> Iterator[str]:
        for fragment in self._plan.fragments:
            middles = [each for each in self._plan.middles if each.fragment == fragment.number]
            for middle in middles:
                yield (
                    f"Spark stage {middle.function} of task {middle.task}, once, over all of "
                    f"{', '.join(middle.upstream)}"
                )
            each = "share of the rows" if middles else "share of the groups"
            if fragment.number == 0:
                each = "partition of the inputs"
            yield f"fragment {fragment.number}: one mapInArrow, a task of Spark for each {each}"
            seen: set[str] = set()
            for task in fragment.begins:
                yield from self._tree(fragment, task, 1, seen)

    def _tree(self, fragment: Fragment, task: str, depth: int, seen: set[str]) -> Iterator[str]:
        indent = "  " * depth
        if task in seen:
            yield f"{indent}{task} (above)"
            return
        seen.add(task)
        yield f"{indent}{task}: {', '.join(self._about(task))}"
        for child in self._below[task]:
            exchange = self._plan.exchange(child)
            middle = self._plan.middle(child)
            if exchange is not None:
                where = f"fragment {exchange.fragment}, {_by(exchange)}"
                yield f"{indent}  shuffle to {child} in {where}"
            elif middle is not None:
                yield f"{indent}  written for the Spark stage of {child}"
            else:
                yield from self._tree(fragment, child, depth + 1, seen)

    def _about(self, task: str) -> Iterator[str]:
        entry, output = self._job.entry(task), self._outputs.get(task)
        yield _kind(entry)
        if tables := looked_up(entry):
            yield f"looks up {' and '.join(tables)}, which each process reads once"
            if any(self._job.entry(each).partitioned for each in tables):
                yield "a part for each bucket"
        if entry.maker is not None:
            yield f"{entry.maker} on {'columns' if entry.batch_format == 'arrow' else 'dicts'}"
        if entry.loop_to is not None:
            yield f"sends back to {entry.loop_to}"
        exchange = self._plan.exchange(task)
        if exchange is not None:
            yield from _state(exchange, entry)
            if (exchange.windows or entry.is_stateful) and self._plan.unbounded:
                yield "its state committed with each micro-batch"
        if output is not None:
            yield _written(output, self._plan.unbounded)


def _kind(entry: CatalogEntry) -> str:
    if entry.stage is not None:
        return f"rows of the Spark stage {entry.stage}"
    if entry.type != "input":
        return entry.type
    time = entry.watermark_key or entry.assign_watermark_fn
    return f"input {entry.plugin}" + (f" with watermarks by {time}" if time else "")


def _by(exchange: Exchange) -> str:
    return "all to one bucket" if exchange.key is None else f"by {exchange.key}"


def _state(exchange: Exchange, entry: CatalogEntry) -> Iterator[str]:
    if len(exchange.apart) > 1:
        kept = "together" if entry.sides else "apart"
        yield f"{'brings' if entry.sides else 'keeps'} {' and '.join(exchange.apart)} {kept}"
    for each in exchange.windows:
        where = "combined before" if each.combined else "folded behind"
        reason = f" ({each.reason})" if each.reason else ""
        yield f"{each.type} window {each.id} of {each.aggregation} {where} the shuffle{reason}"
    if exchange.watermarks == "batches":
        yield "watermarks of every batch"


def _written(output: PlannedOutput, unbounded: bool) -> str:
    when = "behind each micro-batch" if unbounded else "at the end"
    return f"{output.plugin} {_HOW[output.how].format(when=when)}"
