"""Where the segments of a journalled partition come from."""

from __future__ import annotations

from typing import Protocol

from onyx.errors import OnyxError
from onyx.journal.logs import Content, RememberedRequest
from onyx.plugins.journalled.owning import AckedReader
from onyx.telemetry.interface import TaskMetrics


class Feed(AckedReader, Protocol):
    """A source without stable positions. `take`, `appended` and `failed` are called by the writer
    of the journal, `acked`, `passed` and `report` by the task."""

    judges: bool
    """Whether `judged` has to be written while the job drains too."""

    def take(self, first: int, wait_s: float) -> Content | None:
        """What goes into the next chunk, whose first segment has this position; None: nothing came
        within `wait_s`. Raises Unavailable: try again later."""
        ...

    def judged(self, wait_s: float) -> Content | None:
        """What became of segments, without new ones; None: there was nothing within `wait_s`. It is
        written also where there is no room, because the frontier waits for it."""
        ...

    def appended(self, content: Content) -> None:
        """It is durable now: the source may forget it."""
        ...

    def hold(self, reason: str) -> None:
        """The journal cannot be written or has no room: why, or empty when it can be again."""
        ...

    def passed(self, position: int) -> None:
        """The trees of all positions before this one are complete."""
        ...

    def remembered(self) -> list[RememberedRequest]:
        """The requests that the journal is to know further on, in the order of positions."""
        ...

    def ended(self) -> bool:
        """Whether everything was taken and nothing will ever follow."""
        ...

    def report(self, metrics: TaskMetrics) -> None:
        """Count what has happened since the last time; called by the task."""
        ...

    def refuse(self) -> None:
        """The job drains: nothing new is taken, but what was given is processed."""
        ...

    def close(self, error: OnyxError | None) -> None:
        """Nothing is taken any more: the partition goes to another owner, or `error` ended it."""
        ...

    def release(self) -> None:
        """The writer has ended: close what it has used. Called by the writer."""
        ...
