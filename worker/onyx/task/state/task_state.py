"""What one task with state knows on one peer: its operator, which segments it has applied, and how
chunks hold both, as changes or as all there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from onyx.base.runs import Numbers, joined, taken
from onyx.keystate.pages import Pages
from onyx.keystate.uniqueness import Filters
from onyx.ledger.applied import Applied, Mask, without
from onyx.ledger.lineage import any_retried, first_attempts
from onyx.program.operator import Operator
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.recovery import RecoveredState
from onyx.task.state.chunks import NO_COLUMNS, Columns, Whole, stored
from onyx.task.state.emissions import Emissions, PlacedRuns


class TaskState:
    """An operator; keys that were seen, what was applied, and the watermark."""

    def __init__(
        self, operator: Operator, recovered: RecoveredState, exactly_once: bool, filters: Filters
    ) -> None:
        """`filters`: of the task's uniqueness key."""
        self.operator = operator
        self.shards = sorted(recovered.shards)
        self.closed = {n for n, state in recovered.shards.items() if state.closed}
        """Shards that have fired for the last time."""
        self.applied = AppliedIds(recovered.roots, recovered.ids) if exactly_once else None
        self._filters = filters
        self._watermark = recovered.watermark
        """For chunks: never less than it has been, at peers of before too."""
        self._advanced_to: int | None = None
        """What the operator was told last, which may be less after a recovery."""
        self._newly_closed: set[int] = set()
        for shard, state in recovered.shards.items():
            operator.restore(shard, [])  # without state as well: its watermark is kept
            for records in state.records():
                operator.restore(shard, records)
            for keys in state.unique_keys():
                filters.restore(shard, keys)
        operator.restored()

    def fresh(self, batch: Tracked, withdrawn: Sequence[int]) -> Mask | None:
        """Which segments have not been applied yet, as `AppliedIds.fresh`."""
        if self.applied is not None:
            return self.applied.fresh(batch, withdrawn)
        return without(len(batch), withdrawn)

    def unapplied(self, batch: Tracked) -> Mask | None:
        """Which segments have not been applied yet; nothing changes. None: all of them."""
        return None if self.applied is None else self.applied.unapplied(batch)

    def has_seen(self, shard: int, value: Any) -> bool:
        """Whether `first_seen` would say that a value is not new; nothing changes."""
        return self._filters.has_seen(shard, value)

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """By the task's uniqueness key: for each segment, with its shard, whether it is new."""
        found = [False] * len(values)
        indices: dict[int, list[int]] = {}
        for index, shard in enumerate(shards):
            indices.setdefault(shard, []).append(index)
        for shard, mine in indices.items():
            new = self._filters.first_seen(shard, [values[index] for index in mine])
            for index, is_new in zip(mine, new, strict=True):
                found[index] = is_new
        return found

    def advance(self, watermark: int) -> Pages | None:
        """What fires because the watermark of the task has risen to this; None: it has not."""
        if watermark == self._advanced_to:
            return None
        self._advanced_to = watermark
        if self._watermark is None or watermark > self._watermark:
            self._watermark = watermark
        return self.operator.advance(watermark)

    def close(self, shard: int) -> None:
        """A shard has fired for the last time."""
        self.closed.add(shard)
        self._newly_closed.add(shard)

    def changes(self, emitted: PlacedRuns, settled: dict[int, int]) -> Chunk:
        """What has changed since the last chunk.

        Args:
            emitted: what is new of emissions.
            settled: by shard, positions of emissions below which nothing is sent again.
        """
        records = self.operator.take_changes()
        keys = self._filters.take_news()
        closed, self._newly_closed = self._newly_closed, set()
        forgotten = {} if self.applied is None else self.applied.take_forgotten()
        roots, ids = _NOTHING if self.applied is None else self.applied.take_news()
        return Chunk(
            shards={
                shard: ShardChange(
                    records=records.get(shard, []),
                    emitted=stored(emitted.get(shard, ())),
                    settled=settled.get(shard, 0),
                    closed=shard in closed,
                    keys=keys.get(shard, []),
                )
                for shard in sorted({*records, *emitted, *settled, *keys, *closed})
            },
            roots=roots,
            ids=ids,
            forgotten=forgotten,
            watermark=self._watermark,
        )

    def snapshot(self, new: PlacedRuns, emissions: Emissions) -> Chunk:
        """Everything, what is new since the last chunk included.

        Args:
            new: what is new of emissions.
        """
        # Changes are taken and dropped: the snapshot has them, and the next chunk must not.
        self.changes({}, {})
        shards = {}
        for shard in self.shards:
            settled, emitted = emissions.pending(shard)
            shards[shard] = ShardChange(
                emitted=stored([*emitted, *new.get(shard, ())]),
                settled=settled,
                closed=shard in self.closed,
            )
        columns = _NOTHING if self.applied is None else self.applied.columns()
        whole = Whole(shards, self.operator.freeze(self.shards), self._filters.freeze())
        return Chunk(whole, *columns, watermark=self._watermark)


_NOTHING = NO_COLUMNS, NO_COLUMNS


# --- what is applied ----------------------------------------------------------------------------


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
        """Segments count as applied from now on."""
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
