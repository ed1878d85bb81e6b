"""What keeps the state of a function or a processor while a batch is worked on.

On a peer that is `task.state.keeper.StateKeeper`, with a state log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from onyx.flow.batch import Batch, Segments
from onyx.ledger.applied import Mask
from onyx.program.batch_work import BatchWork
from onyx.runs import Numbers, taken
from onyx.seams import Clock


class Keeping(Protocol):
    """What keeps the state of a task while a batch is worked on, and makes it durable."""

    clock: Clock

    @property
    def shard_of(self) -> Mapping[Any, int]:
        """The shard of a group key."""
        ...

    def unapplied(self, batch: Batch) -> Mask | None:
        """Which segments have not been applied yet; nothing changes. None: all of them."""
        ...

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """Segments of a batch that are not withdrawn count as applied from now on."""
        ...

    def has_seen(self, shard: int, value: Any) -> bool:
        """Whether a segment with this uniqueness key has been applied."""
        ...

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """Segments with these uniqueness keys count as applied from now on."""
        ...

    def emit(self, shard: int, segments: Segments, child: str | None = None) -> None:
        """Send these when that is safe."""
        ...

    def emit_for(self, shard: int, segments: Segments, parents: Numbers) -> None:
        """Send these when that is safe. `parents`: the root of the tree that each was made of."""
        ...

    def changed(self, segments: int) -> None:
        """So many segments have changed the state."""
        ...


def keep_changes(keeping: Keeping, work: BatchWork) -> None:
    """A batch that has been routed counts as applied, and what was made of it may be sent."""
    if work.batch is None or work.leaves is None:
        return
    assert work.routed is not None, "the phase before"
    keeping.fresh(work.batch, work.routed.withdrawn)
    for shard, segments in work.made:
        indices = work.made_of.get(shard)
        if indices is None or work.batch.roots is None:
            keeping.emit(shard, segments)
        else:
            keeping.emit_for(shard, segments, taken(work.batch.roots, np.array(indices, np.intp)))
    keeping.changed(len(work.batch))
