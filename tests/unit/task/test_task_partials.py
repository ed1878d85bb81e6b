"""States in place of segments: what of them counts as applied, and what comes again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.unit.ledger.test_ledger_applied import ids, roots

from onyx.base.runs import Numbers, array_of
from onyx.task.phases.apply import merge_partials
from onyx.task.state.task_state import AppliedIds
from onyx.transport.interface import Partial


class Keeper:
    """That of a task whose windows take no states."""

    def __init__(self, applied: AppliedIds) -> None:
        self.unapplied = applied.unapplied
        self.operator = SimpleNamespace(takes=lambda records: False)
        self.acked: list[int] = []
        self.awaited: list[int] = []

    def withhold(self, of: Numbers, values: Numbers) -> None:
        self.acked += array_of(values).tolist()

    def wait_for(self, of: Numbers, named: Numbers) -> None:
        self.awaited += array_of(named).tolist()


def test_both_attempts_of_what_is_not_taken_come_again() -> None:
    applied = AppliedIds(roots(0, 4), ids(40))
    both = np.concatenate([roots(0, 4, 5), roots(0, 4, 5, attempt=1)])
    work: Any = SimpleNamespace(partials=[Partial(b"\x90", both, ids(40, 50, 40, 50))])
    keeper, asked = Keeper(applied), list[int]()
    merge_partials(keeper, work, lambda of, most: asked.extend(array_of(of).tolist()))  # type: ignore[arg-type]
    assert keeper.acked == [40, 40]
    assert keeper.awaited == [50, 50]
    assert asked == both[[1, 3]].tolist()
