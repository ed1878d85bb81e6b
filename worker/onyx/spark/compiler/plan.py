"""The plan of a job on Spark: values that can be compared and printed.

A plan is a row of fragments. A fragment is a function that Spark runs once a partition: it begins
with inputs, or with segments that were shuffled to it, and passes them through a tree of tasks
without leaving Python. Where a task needs all segments of a group, the fragment ends in a shuffle,
and that task begins a later fragment. So a job without windows and groups is one fragment.

A Spark stage of the user in the middle (`sparkStage`) is a barrier: all fragments of the plan above
it are done, and their rows fixed, before it runs, and its own rows begin a later fragment.
"""

from __future__ import annotations

from typing import Literal

import msgspec


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
