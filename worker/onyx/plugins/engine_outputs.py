"""What the engine asks of some of its own outputs beyond `protocol.Output`."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from onyx.errors import UserError
from onyx.flow.batch import Segments
from onyx.flow.segment_failure import SegmentFailure


class RefusedSegments(NamedTuple):
    """Segments that an output had taken, and finds that it can never write."""

    first: int
    """How many were written to the instance before them, as `Output.durable` counts."""
    segments: int
    error: UserError
    kept: bool
    """Whether the output keeps them as dead letters, so that nobody has to mind."""


@runtime_checkable
class RefusingOutput(Protocol):
    """The method that an output has in addition if it learns only after `write` that others take
    some segments and refuse some, as a server does. The task decides what that means: the answer to
    a request, or the end of the job."""

    def take_refused(self) -> list[RefusedSegments]:
        """What has been refused since the last call. `Output.durable` counts such segments when
        they are nobody's any more, and not before they are in what this returns."""
        ...


@runtime_checkable
class StageOutput(Protocol):
    """What the output half of a task with a Spark stage has in addition. Its `seal` says that
    nothing more comes; what the stage makes is read by the input half."""

    doing: str
    """What the stage does now, in words; empty if it does not run. Read by any thread."""

    def choose(self, upstream: str) -> None:
        """What is written from now on comes from this task."""
        ...

    def misfits(self, segments: Segments) -> list[SegmentFailure]:
        """The segments of the chosen task that no DataFrame of the stage can have beside those that
        came before, by index."""
        ...

    def lead(self, leads: bool) -> None:
        """Whether this peer of the task is the one that runs the stage. Asked for in each
        allocation version; two peers may believe it for a while."""
        ...
