"""Which segments a windowed task has applied, under exactly-once, and what is new of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onyx.base.runs import Numbers, joined, taken
from onyx.ledger.applied import Applied, Mask, without
from onyx.ledger.lineage import any_retried, first_attempts
from onyx.task.state.chunks import NO_COLUMNS, Columns


class Tracked(Protocol):
    """Segments with lineage, or what was folded of them."""

    @property
    def roots(self) -> Numbers | None:
        """The root of each segment."""
        ...

    @property
    def ids(self) -> Numbers | None:
        """The id of each segment."""
        ...

    def __len__(self) -> int: ...


class AppliedIds:
    """The ids of a peer that has taken over these."""

    def __init__(self, roots: Numbers, ids: Numbers) -> None:
        self._applied = Applied(roots, ids)
        self._applied.rewired()
        self._news: list[Columns] = []
        self._forgotten: dict[int, int] = {}

    def fresh(self, batch: Tracked, withdrawn: Sequence[int]) -> Mask | None:
        """Which segments have not been applied yet; from now on they count as applied. None: all
        of them.

        Args:
            withdrawn: segments that are not to be applied.
        """
        roots, ids = batch.roots, batch.ids
        kept = without(len(batch), withdrawn)
        if roots is None or ids is None:
            return kept
        if kept is not None:
            roots, ids = taken(roots, kept), taken(ids, kept)
        # What is withdrawn is not known because of that: another attempt may have brought it too.
        known = self._applied.known(roots, ids)
        if known is not None:
            roots, ids = taken(roots, ~known), taken(ids, ~known)
        self.apply(roots, ids)
        if kept is None or known is None:
            return kept if known is None else ~known
        kept[kept] = ~known
        return kept

    def unapplied(self, batch: Tracked) -> Mask | None:
        """Which segments have not been applied yet, of the same ones the first; nothing changes.
        None: all of them."""
        if batch.roots is None or batch.ids is None:
            return None
        known = self._applied.known(batch.roots, batch.ids)
        return None if known is None else ~known

    def apply(self, roots: Numbers, ids: Numbers) -> None:
        """These count as applied."""
        if len(roots):
            self._applied.add(roots, ids)
            self._news.append((roots, ids))

    def forget(self, frontiers: dict[int, int]) -> None:
        """Nothing below these positions of their partitions comes again."""
        if frontiers:
            self._applied.forget(frontiers)
            self._forgotten.update(frontiers)

    def take_forgotten(self) -> dict[int, int]:
        """The positions below which was forgotten since the last time."""
        forgotten, self._forgotten = self._forgotten, {}
        return forgotten

    def take_news(self) -> Columns:
        """What was applied since the last time."""
        news, self._news = self._news, []
        if not news:
            return NO_COLUMNS, NO_COLUMNS
        roots, ids = (joined(each) for each in zip(*news, strict=True))
        return first_attempts(roots) if any_retried(roots) else roots, ids

    def columns(self) -> Columns:
        """All that is known as applied."""
        return self._applied.columns()
