"""What an acker keeps of open trees is bounded, and nobody who asks for a value is left without a
reason, or reads that all went well where something failed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onyx.base.runs import Numbers
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.ledger.outcomes import Outcomes
from onyx.ledger.returns import OUTCOMES, Parts, Trees, part_of
from onyx.task.acking import acker
from onyx.task.acking.acker import GONE, OpenReturns
from onyx.task.channels.wiring import Site


class Sent:
    """A transport that takes everything."""

    def __init__(self) -> None:
        self.trees: Trees = {}

    def send_returns(self, *args: Any, to_acker: bool) -> bool:
        self.trees |= args[4]
        return True


class One:
    def split(self, roots: Numbers) -> list[tuple[Site, Numbers]]:
        return [(Site(PeerId("p"), GroupId("g")), roots)]


def parts(number: int) -> Parts:
    return {"total": part_of("sum", number, 8), OUTCOMES: Outcomes(failed=1).part()}


def test_values_of_the_oldest_trees_go_with_a_reason_and_their_failures_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acker, "TREES_MAX", 2)
    monkeypatch.setattr(acker, "BARE_MAX", 3)
    sent = Sent()
    kept = OpenReturns(sent, JobId("j"), AllocationVersion(1))  # type: ignore[arg-type]
    for root in range(5):
        kept.add({root: parts(root)})
    kept.add({1: parts(1)})  # another part of a tree whose first one has no value any more
    kept.complete(np.arange(5, dtype=np.uint64), One())  # type: ignore[arg-type]
    assert kept.send()
    shown = {
        root: (tree["total"].error or tree["total"].value, tree[OUTCOMES].value[0])
        for root, tree in sent.trees.items()
    }
    failed = Outcomes(failed=1).part().value[0]
    assert shown == {1: (GONE, 2 * failed), 2: (GONE, failed), 3: (GONE, failed), 4: (4, failed)}
