"""Where the segments of a journalled partition come from."""

from __future__ import annotations

from typing import Protocol

from onyx.errors import OnyxError
from onyx.flow.batch import U64
from onyx.journal.chunk import Content, Remembered
from onyx.ledger.returns import Parts
from onyx.telemetry.interface import TaskMetrics


class Feed(Protocol):
    """A source without stable positions. `take`, `appended` and `failed` are called by the writer
    of the journal, `acked`, `passed` and `report` by the task."""

    def take(self, first: int, wait_s: float) -> Content | None:
        """What goes into the next chunk, whose first segment has this position; None: nothing came
        within `wait_s`. Raises Unavailable: try again later."""
        ...

    def judged(self) -> Content | None:
        """What became of segments, without new ones: it is written also where there is no room,
        because the frontier waits for it."""
        ...

    def appended(self, content: Content) -> None:
        """It is durable now: the source may forget it."""
        ...

    def hold(self, reason: str) -> None:
        """The journal cannot be written or has no room: why, or empty when it can be again."""
        ...

    def acked(self, positions: U64) -> None:
        """The trees of these positions, which rise, have become complete."""
        ...

    def returned(self, position: int, parts: Parts) -> None:
        """What functions give back for the tree of a position, and what is said of it
        (`ledger.outcomes`), before it is complete."""
        ...

    def given_up(self, positions: U64) -> None:
        """These positions, which rise, have failed or were lost, and are not read again."""
        ...

    def settled(self, position: int) -> int:
        """How far the frontier may go, of a position that it could go to: not beyond what has
        failed until that is durable."""
        ...

    def sent_again(self, positions: U64) -> None:
        """These positions, which rise, are sent again: whoever waits for them still does."""
        ...

    def awaited(self, position: int) -> bool:
        """Whether somebody waits for something all of which is before this position, once."""
        ...

    def passed(self, position: int) -> None:
        """The trees of all positions before this one are complete."""
        ...

    def remembered(self) -> list[Remembered]:
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
