"""What a window by Spark holds on one peer: rows in memory, and files on their way or written.

Rows become a part when a chunk of the state log is cut, which names it. So a part counts exactly
when what the task has applied counts.
"""

from __future__ import annotations

from collections.abc import Collection

from onyx.keystate.coded import Keyed
from onyx.keystate.groups import Shards
from onyx.keystate.records import ClearExtent, Files, Record, SpooledFired, SpooledPart
from onyx.model.kinds import WINDOWS, aggregation_name
from onyx.spark.windows.buffer import Buffer
from onyx.spark.windows.holdings import Holdings
from onyx.spark.windows.late import without_late
from onyx.spark.windows.part_files import Garbage, PartFiles
from onyx.spark.windows.plan import OPTIONAL, Plan
from onyx.spark.windows.spool import Spool, new_part
from onyx.spark.windows.states import native_of
from onyx.spark.windows.waiting import waiting
from onyx.windows.compiled import CompiledWindow
from onyx.windows.prepared import Taken
from onyx.windows.watermarks import ShardWatermarks


class Contents:
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
        self.waiting = waiting(compiled, self.holdings, self._buffer)
        self.assigner = self.waiting.assigner
        self._lateness = compiled.lateness if self.assigner.bounded else None
        self._new_files: list[PartFiles] = []
        self._files: list[PartFiles] = []
        """Being written."""
        self.changes: list[tuple[frozenset[int], Record]] = []
        """With the shards that each is about; taken with the next chunk."""

    def add(self, keys: Keyed, taken: Taken) -> tuple[list[int], list[int]]:
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

    def take_files(self) -> list[Files]:
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
