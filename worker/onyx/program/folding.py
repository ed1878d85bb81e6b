"""What segments and firings do to the windows of a task, whoever keeps its state.

On a peer that is `state.StateKeeper`, with a state log. A query over bounded inputs keeps the same
windows in memory, because it begins anew when it fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from onyx.flow.batch import Batch, EncodedRun, Segment, Segments
from onyx.ledger.applied import Mask
from onyx.program.trigger_calls import TriggerCalls
from onyx.seams import Clock
from onyx.windows.task_windows import TaskWindows


class Emitting(Protocol):
    """A state of which something fires."""

    calls: TriggerCalls
    closed: set[int]
    """Shards that have fired for the last time."""

    def emit(
        self,
        shard: int,
        segments: Segments,
        child: str | None = None,
        encoded: EncodedRun | None = None,
    ) -> None:
        """Send these when that is safe; late segments to a child of their own.

        Args:
            encoded: their bytes for a state log, if somebody has them.
        """
        ...

    def changed(self, segments: int) -> None:
        """So many segments, or firings, have changed the state."""
        ...


class Folding(Emitting, Protocol):
    """The windows of a task while a batch is worked on."""

    @property
    def windows(self) -> TaskWindows:
        """Their states."""
        ...

    clock: Clock

    @property
    def shard_of(self) -> Mapping[Any, int]:
        """The shard of a group key."""
        ...

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """Which segments have not been applied yet; from now on they are. None: all of them."""
        ...

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """By the task's uniqueness key: for each segment, with its shard, whether it is new."""
        ...


def emit_late(
    emitting: Emitting, children: Sequence[str], late: Sequence[Segment], shards: Sequence[int]
) -> None:
    """Send segments that came late to the children that are there for them."""
    for child in children:
        for segment, shard in zip(late, shards, strict=True):
            emitting.emit(shard, [segment], child)
