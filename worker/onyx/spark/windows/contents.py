"""What a window by Spark holds on one peer, rows in memory and files on their way or written, and
which of its extents wait for a watermark.

Rows become a part when a chunk of the state log is cut, which names it. So a part counts exactly
when what the task has applied counts.

Of windows whose extents have numbers, each number waits to fire and to be dropped. Of sessions a
peer knows none: it knows a watermark before which none is due, of what rows and results have; when
that is reached, Spark finds those that are. So what a peer keeps does not grow with groups.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np

from onyx.keystate.coded import Keyed, rows
from onyx.keystate.dues import Dues
from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards
from onyx.keystate.records import ClearExtent, Record, SpooledFired, SpooledPart, StateFiles
from onyx.model.kinds import WINDOWS, aggregation_name
from onyx.spark.windows.buffer import Buffer, Garbage, PartFiles
from onyx.spark.windows.holdings import Holdings
from onyx.spark.windows.plan import OPTIONAL, Plan, SessionRule
from onyx.spark.windows.results import native_of
from onyx.spark.windows.spool import Spool, new_part
from onyx.windows.assigning.assigner import Assigner, BatchPart, OneExtent, Tiling
from onyx.windows.compiled import CompiledWindow
from onyx.windows.prepared import WindowInput
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.units import standard
from onyx.windows.watermarks import NOTHING_SEEN, ShardWatermarks

GAP_MAX = 2**62
"""Longer ones are the same, as coordinates are within 62 bits."""
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class WindowContents:
    """The rows and files of one window, and which of its extents wait for something."""

    def __init__(
        self,
        compiled: CompiledWindow,
        shards: Shards,
        folder: Spool,
        watermarks: ShardWatermarks,
    ) -> None:
        window = compiled.window
        kind = WINDOWS[window.type]
        self._id = window.id
        self._aggregation = window.aggregation
        self._shards = shards
        self._folder = folder
        self._watermarks = watermarks
        self._native = native_of(compiled)
        self._overlapping = kind.overlapping
        self._buffer = Buffer(self._native, kind, shards)
        self.holdings = Holdings(window.id)
        self.waiting = pending_extents(compiled, self.holdings, self._buffer)
        self.assigner = self.waiting.assigner
        self._lateness = compiled.lateness if self.assigner.bounded else None
        self._new_files: list[PartFiles] = []
        self._files: list[PartFiles] = []
        """Being written."""
        self.changes: list[tuple[frozenset[int], Record]] = []
        """With the shards that each is about; taken with the next chunk."""

    def add(self, keys: Keyed, taken: WindowInput) -> tuple[list[int], list[int]]:
        """Take a batch: the shards of its rows, and the indices of late segments."""
        coordinates = () if taken.coordinates is None else taken.coordinates
        parts = self.assigner.split(coordinates, taken.ints)
        parts, late = without_late(
            parts, keys, self._lateness, self.assigner, self._watermarks, self._shards
        )
        self.waiting.came(parts)
        return self._buffer.add(parts, keys, taken), late

    def extents(self, shards: Collection[int]) -> list[int]:
        """Extents of some shards, in order."""
        return sorted({*self.holdings.extents(shards), *self._buffer.extents})

    def unwritten(self) -> bool:
        """Whether rows are not in a file yet."""
        self._files = [each for each in self._files if not each.written]
        return bool(len(self._buffer) or self._new_files or self._files)

    def plan(
        self,
        numbers: list[int],
        shards: frozenset[int],
        watermark: int | float | None,
        evicts: bool = True,
    ) -> Plan:
        """What Spark is to aggregate of extents that fire.

        Args:
            watermark: of which some fire; None: all do.
            evicts: whether nothing becomes state of what has fired.
        """
        rule, watching = self.waiting.rule(watermark), self.waiting.watching
        only = numbers[0] if rule is None and len(numbers) == 1 else None
        tracked = watching is not None and (rule is not None or not watching.forgets)
        used = self.holdings.columns(numbers)
        return Plan(
            aggregation_name(self._aggregation),
            self._native,
            tuple(name for name in OPTIONAL if name in used),
            self.holdings.pieces(numbers, shards, self._folder),
            self._overlapping,
            tracked,
            watermark is not None and tracked,
            rule,
            only,
            sharded=not evicts or (watermark is not None and rule is not None),
        )

    @property
    def seq(self) -> int:
        """The number of the next row."""
        return self._buffer.seq

    def seal(self) -> None:
        """What the buffer has becomes a part."""
        if not len(self._buffer):
            return
        made, name = self._buffer.take(), new_part()
        self._new_files.append(PartFiles(self._folder, name, made.table))
        part = SpooledPart(
            self._id, name, list(made.extents), list(made.columns), len(made.table), made.seq,
            partial=False, emptied=False, settled=False,
            unfired=False, due=self.waiting.due(made.least),
        )  # fmt: skip
        self.hold(part, made.shards)

    def hold(self, part: SpooledPart, shards: frozenset[int]) -> None:
        """A file of this peer counts for some shards."""
        self.holdings.add(part, shards, own=True)
        self.changes.append((shards, part))

    def remove(self, record: Record, numbers: Collection[int], shards: frozenset[int]) -> None:
        """Extents lose what they have, for this reason."""
        # Their rows first become a part: the record is about all that came before it, and rows in
        # the buffer would stand behind it in the log, as if they had come later.
        if not self._buffer.extents.isdisjoint(numbers):
            self.seal()
        self.changes.append((shards, record))
        self.holdings.remove(numbers, shards)

    def take_files(self) -> list[StateFiles]:
        """Files that belong to the changes taken last."""
        new, self._new_files = self._new_files, []
        self._files += new
        garbage = self.holdings.take_garbage()
        return [*new, Garbage(self._folder, garbage)] if garbage else [*new]

    def restore(self, record: Record, shards: frozenset[int]) -> None:
        """Apply a record about files that some peer has made; others change nothing."""
        match record:
            case SpooledPart():
                self.holdings.add(record, shards, own=False)
                # Rows of any peer have numbers of their own: those that come are behind all.
                self._buffer.begin(record.seq)
                self.waiting.restored(record)
            case SpooledFired():
                self.holdings.remove(record.extents, shards)
            case ClearExtent():
                self.holdings.remove([record.extent], shards)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        self.seal()
        self.holdings.drop(shards)


class PendingExtents(Protocol):
    """What waits in one window on one peer."""

    assigner: Assigner
    watching: Trigger | None
    """The trigger that looks at watermarks, if a watermark can pass extents."""

    def came(self, parts: list[BatchPart]) -> None:
        """Rows have come into extents."""
        ...

    def restored(self, part: SpooledPart) -> None:
        """Extents have what a file has."""
        ...

    def passed(self, watermark: Number) -> list[int]:
        """Extents in which something may be due at a watermark; they wait no more."""
        ...

    def expired(self, watermark: Number) -> list[int]:
        """Extents that a watermark has passed by more than the lateness allowed."""
        ...

    def due(self, least: Number | None) -> Number | None:
        """The watermark before which no row with this first coordinate fires
        (`SpooledPart.due`)."""
        ...

    def rule(self, watermark: Number | None) -> SessionRule | None:
        """How sessions are found; None where extents have numbers.

        Args:
            watermark: those that are due at it fire; None: all.
        """
        ...


class NumberedPending:
    """What waits of extents that have numbers."""

    def __init__(self, compiled: CompiledWindow, holdings: Holdings, buffer: Buffer) -> None:
        self._holdings = holdings
        self._buffer = buffer
        self.assigner = _assigner(compiled)
        bounded = self.assigner.bounded
        self._lateness = compiled.lateness if bounded else None
        self.watching = _watching(compiled) if bounded else None
        self._passing: Dues[int] = Dues()
        """Extents that have got rows since a watermark made them fire."""
        self._expiring: Dues[int] = Dues()

    def came(self, parts: list[BatchPart]) -> None:
        """Rows have come into extents."""
        for part in parts:
            for number in part.numbers:
                self._await(number, True)

    def restored(self, part: SpooledPart) -> None:
        """Extents have what a file has. They wait as they did."""
        for number in part.extents:
            self._await(number, not part.settled)

    def _await(self, number: int, waits: bool) -> None:
        lower, upper = self.assigner.bounds(number)
        if self.watching is not None and waits:
            self._passing.put(number, self.watching.due(lower, upper, 0))
        if self._lateness is not None:
            self._expiring.put(number, upper + self._lateness + 1)

    def passed(self, watermark: Number) -> list[int]:
        """Extents in which something may be due at a watermark; they wait no more."""
        passed = self._passing.take(watermark)
        return sorted(each for each in passed if self._has(each))

    def _has(self, number: int) -> bool:
        return number in self._holdings or number in self._buffer.extents

    def expired(self, watermark: Number) -> list[int]:
        """Extents that a watermark has passed by more than the lateness allowed."""
        if self._lateness is None:
            return []
        found = list(self._expiring.take(watermark))
        for number in found:
            self._passing.remove(number)
        return found

    def due(self, least: Number | None) -> None:
        """Nothing waits for a watermark of its own."""

    def rule(self, watermark: Number | None) -> None:
        """How sessions are found; None where extents have numbers."""


class SessionsPending:
    """What waits of sessions, which are all in one extent."""

    assigner: Assigner = OneExtent()

    def __init__(self, compiled: CompiledWindow, holdings: Holdings, buffer: Buffer) -> None:
        assert compiled.window.timeout_gap is not None, "checked when the job is parsed"
        self._gap = standard(compiled.window.timeout_gap)
        self._holdings = holdings
        self._buffer = buffer
        self.watching = _watching(compiled)

    def came(self, parts: list[BatchPart]) -> None:
        """Rows have come into extents. The buffer knows."""

    def restored(self, part: SpooledPart) -> None:
        """Extents have what a file has. The holdings know."""

    def passed(self, watermark: Number) -> list[int]:
        """Extents in which something may be due at a watermark; they wait no more."""
        dues = (self.due(self._buffer.least), self._holdings.due())
        reached = any(due is not None and due <= watermark for due in dues)
        return [OneExtent.NUMBER] if reached else []

    def expired(self, watermark: Number) -> list[int]:
        """Extents that a watermark has passed by more than the lateness allowed. There is no
        lateness."""
        return []

    def due(self, least: Number | None) -> Number | None:
        """The watermark at which a session with this first coordinate may fire. The last coordinate
        of a session only rises; but a session that has a share of it due may have begun at any
        time."""
        if self.watching is None or least is None:
            return None
        if _share(self.watching) is not None:
            return NOTHING_SEEN
        return self.watching.due(least, least, self._gap)

    def rule(self, watermark: Number | None) -> SessionRule:
        """How sessions are found; None where extents have numbers."""
        gap = min(self._gap, GAP_MAX)
        if self.watching is None:
            return SessionRule(gap)
        delay = min(self.watching.due(0, 0, self._gap), GAP_MAX)
        if watermark is not None:
            watermark = max(_INT_MIN, min(watermark, _INT_MAX))
        return SessionRule(gap, int(delay), _share(self.watching), watermark)


def pending_extents(compiled: CompiledWindow, holdings: Holdings, buffer: Buffer) -> PendingExtents:
    """What waits in a window, by its type."""
    is_known = WINDOWS[compiled.window.type].known
    made = NumberedPending if is_known else SessionsPending
    return made(compiled, holdings, buffer)


def _watching(compiled: CompiledWindow) -> Trigger | None:
    return next((each for each in compiled.triggers if each.by_watermark), None)


def _share(trigger: Trigger) -> float | None:
    return trigger.declared.watermark_percentage


def _assigner(compiled: CompiledWindow) -> Assigner:
    window = compiled.window
    if window.type == "global":
        return OneExtent()
    assert window.range is not None, "checked when the job is parsed"
    width = standard(window.range)
    slide = width if window.slide is None else standard(window.slide)
    return Tiling(window.min_value, width, slide)


def without_late(
    parts: list[BatchPart],
    keys: Keyed,
    lateness: int | None,
    assigner: Assigner,
    watermarks: ShardWatermarks,
    shards: Shards,
) -> tuple[list[BatchPart], list[int]]:
    """Parts of extents that are open, and the indices of segments that none of them has.

    Args:
        lateness: how far the watermark may be past the end of an open extent; None: any.
    """
    if lateness is None:
        return parts, []
    ahead = bool(watermarks.own)
    of_rows = np.array([shards[key] for key in rows(keys)], np.int64) if ahead else None
    kept: list[BatchPart] = []
    late: list[int] = []
    for part in parts if of_rows is None else _by_shard(parts, of_rows):
        indices = np.arange(len(keys)) if part.indices is None else part.indices
        watermark = watermarks.task
        if of_rows is not None and len(indices):
            watermark = watermarks.of(int(of_rows[indices[0]]))
        open_ = tuple(n for n in part.numbers if assigner.bounds(n)[1] + lateness >= watermark)
        if open_:
            kept.append(BatchPart(open_, part.indices))
        else:
            late += indices.tolist()
    return kept, sorted(late)


def _by_shard(
    parts: list[BatchPart], of_rows: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> list[BatchPart]:
    """Parts of one shard each, because shards differ in their watermarks."""
    found: list[BatchPart] = []
    for part in parts:
        indices = np.arange(len(of_rows)) if part.indices is None else part.indices
        mine = of_rows[indices]
        found += [BatchPart(part.numbers, indices[mine == shard]) for shard in np.unique(mine)]
    return found
