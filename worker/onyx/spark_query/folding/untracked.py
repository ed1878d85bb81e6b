"""State of a query, into which no segment comes twice: nothing says which have been applied.

Spark takes the rows of a task of its own once, whatever it repeats, so what peers keep for that has
no counterpart here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onyx.flow.batch import Batch
from onyx.flow.groups.keys import shard_of
from onyx.keystate.groups import Shards
from onyx.ledger.applied import Mask
from onyx.program.program import Program
from onyx.program.trigger_calls import calls_of


class UntrackedFolding:
    """What is alike wherever a query keeps state (`program.folding.Folding`)."""

    def __init__(self, program: Program) -> None:
        its = program.stateful
        assert its is not None, "only tasks with state fold"
        self.shard_of = Shards(shard_of if its.is_split else _only_shard)
        self.calls = calls_of(program)
        self.clock = program.clock
        self.closed: set[int] = set()

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """All but those that are withdrawn: nothing comes twice."""
        if not withdrawn:
            return None
        news = np.ones(len(batch), np.bool_)
        news[list(withdrawn)] = False
        return news


def _only_shard(group: None) -> int:
    return 0
