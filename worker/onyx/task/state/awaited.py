"""Segments that have come in a form that could not be used, and come again: event time waits."""

from __future__ import annotations

from collections.abc import Mapping

from onyx.base.runs import Numbers, array_of
from onyx.ledger.lineage import PARTITION_SHIFT, POSITIONS_MAX, first_attempts


class Awaited:
    """Their ids, each with its root. They are few: those of a batch, after a crash."""

    def __init__(self) -> None:
        self._roots: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._roots)

    def add(self, roots: Numbers, ids: Numbers) -> None:
        """These come again."""
        pairs = zip(array_of(ids).tolist(), array_of(first_attempts(roots)).tolist(), strict=True)
        self._roots.update(pairs)

    def arrived(self, ids: Numbers) -> None:
        """Segments have come, among which some of these may be."""
        for each in array_of(ids).tolist():
            self._roots.pop(each, None)

    def forget(self, frontiers: Mapping[int, int]) -> None:
        """Nothing below these positions of their partitions comes again, though it was to: the
        function of a task has not made it again."""
        self._roots = {
            id: root
            for id, root in self._roots.items()
            if root & (POSITIONS_MAX - 1) >= frontiers.get(root >> PARTITION_SHIFT, 0)
        }
