"""The keeper of a state into which no segment comes twice: nothing says which have been applied.

Spark takes the rows of a task of its own once, whatever it repeats, so what peers keep for that has
no counterpart here.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.base.seams import Clock
from onyx.flow.batch import Batch
from onyx.keystate.groups import Shards
from onyx.ledger.applied import Mask, without


class Untracked:
    """What is alike wherever a query keeps state (`program.operator.Keeper`)."""

    closed: frozenset[int] = frozenset()
    """None: a key group fires for the last time behind all that comes."""

    def __init__(self, shard_of: Shards, clock: Clock) -> None:
        self.shard_of = shard_of
        self.clock = clock

    def unapplied(self, batch: Batch) -> Mask | None:
        """All segments: nothing comes twice."""
        return None

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """All but those that are withdrawn."""
        return without(len(batch), withdrawn)
