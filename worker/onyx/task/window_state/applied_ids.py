"""Which segments a windowed task has applied, under exactly-once, and what is new of that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onyx.flow.batch import U64, Batch
from onyx.ledger.applied import Applied, Mask
from onyx.ledger.lineage import any_retried, without_attempts
from onyx.task.window_state.chunks import NO_COLUMNS, Columns


class AppliedIds:
    """The ids of a peer that has taken over these."""

    def __init__(self, roots: U64, ids: U64) -> None:
        self._applied = Applied(roots, ids)
        self._applied.rewired()
        self._news: list[Columns] = []
        self._forgotten: dict[int, int] = {}

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """Which segments have not been applied yet; from now on they count as applied. None: all
        of them.

        Args:
            withdrawn: segments that are not to be applied.
        """
        news = without(batch, withdrawn)
        if batch.roots is not None and batch.ids is not None:
            news &= ~self._applied.known(batch.roots, batch.ids)
            if news.all():
                self.apply(batch.roots, batch.ids)
            else:
                self.apply(batch.roots[news], batch.ids[news])
        return None if news.all() else news

    def apply(self, roots: U64, ids: U64) -> None:
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
        parts, ids = zip(*news, strict=True)
        roots = np.concatenate(parts)
        return without_attempts(roots) if any_retried(roots) else roots, np.concatenate(ids)

    def columns(self) -> Columns:
        """All that is known as applied."""
        return self._applied.columns()


def without(batch: Batch, withdrawn: Sequence[int]) -> Mask:
    """Which segments are not withdrawn."""
    news = np.ones(len(batch), dtype=np.bool_)
    news[list(withdrawn)] = False
    return news
