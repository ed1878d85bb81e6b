"""States that came in place of segments, into the windows of the task.

The windows take a partial as a whole or not at all: some of its segments may have been applied
before, or have come too late, and nobody can say what they have given to a sum. Then those that
were not applied are read again, and come as segments; event time stands still until they have.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onyx.base.runs import Numbers, taken
from onyx.codec.records import decode_records
from onyx.functions.retry import RETRIES_MAX
from onyx.keystate.records import StatesRecord
from onyx.ledger.applied import repeats_of
from onyx.task.parts.work import Work
from onyx.task.state.keeper import StateKeeper
from onyx.transport.interface import Partial

AskAgain = Callable[[Numbers, int], None]
"""Has roots read again, each at most so many times."""


def merge_partials(keeper: StateKeeper, work: Work, ask_again: AskAgain) -> None:
    """Merge what came with the batch."""
    partials, work.partials = work.partials, []
    for partial in partials:
        _merge(keeper, partial, ask_again)


def _merge(keeper: StateKeeper, partial: Partial, ask_again: AskAgain) -> None:
    unapplied = keeper.unapplied(partial)
    records = [each for each in decode_records(partial.states) if isinstance(each, StatesRecord)]
    if unapplied is None and keeper.operator.takes(records):
        keeper.fresh(partial, ())
        keeper.operator.merge(records)
        keeper.changed(len(partial))
        keeper.withhold(partial.roots, partial.ids)
        return
    again = np.ones(len(partial), np.bool_) if unapplied is None else unapplied
    again[[*repeats_of(partial.roots, partial.ids, again.nonzero()[0])]] = True
    applied, left = (~again).nonzero()[0], again.nonzero()[0]
    keeper.withhold(taken(partial.roots, applied), taken(partial.ids, applied))
    if len(left):
        keeper.wait_for(taken(partial.roots, left), taken(partial.ids, left))
        ask_again(taken(partial.roots, left), RETRIES_MAX)
