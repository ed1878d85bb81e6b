"""A window by Spark that is asked about, restored from the records of its shards.

The records name the files that have its state (`windows.contents`). What peers hold in memory is in
no file yet and not in the answer: so an answer is as of the last chunk of each peer, and durable.
The plan of what is read is that of a firing; what Spark would do with it is done here, within
bounds. What was read is kept for the pages behind the first one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from onyx.keystate.extents import ALL, Extent
from onyx.keystate.groups import Shards, hashable_key
from onyx.keystate.records import Record
from onyx.keystate.selection import Selection
from onyx.spark.answers.extents import HELD_BYTES_MAX, ExtentsOfFiles
from onyx.spark.answers.files import ROWS_MAX, FileReader, Limits
from onyx.spark.windows.contents import Contents
from onyx.spark.windows.plan import KEY_INT
from onyx.spark.windows.row_columns import INT64
from onyx.spark.windows.spool import Spool
from onyx.windows.compiled import CompiledWindow
from onyx.windows.extent_view import Placed
from onyx.windows.watermarks import ShardWatermarks

Show = Callable[[Any, Any], Extent]
"""Gives the answer about a group and extent."""


class AskedWindow:
    """Not thread-safe."""

    def __init__(
        self,
        compiled: CompiledWindow,
        folder: Spool,
        shard_of: Callable[[Any], int],
        rows_max: int = ROWS_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        """`compiled`: without triggers, which matter to nobody who asks."""
        self._compiled = compiled
        self._all_shards = Shards(shard_of)
        self._folder = folder
        self._rows_max, self._held_bytes_max = rows_max, held_bytes_max
        watermarks = ShardWatermarks(compiled.window.id, False, False, self._all_shards)
        self._contents = Contents(compiled, self._all_shards, folder, watermarks)
        self._bounds = self._contents.assigner.bounds
        self._shards: set[int] = set()
        self._last: tuple[Selection, Show, list[Placed]] | None = None
        """What was read last."""

    def restore(self, shard: int, records: Iterable[Record]) -> None:
        """Apply records of the window to a shard."""
        self._shards.add(shard)
        for record in records:
            self._contents.restore(record, frozenset((shard,)))

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """Its extents that are asked for, the first in order.

        Raises:
            UserError: a file is damaged, or more would be read or held than may be.
            Unavailable: a file is gone, because there are newer records, or cannot be read now.
        """
        select = replace(asked, after=None)
        if self._last is None or self._last[0] != select:
            self._last = select, *self._read(select)
        _, show, places = self._last
        first = 0
        if asked.after is not None:
            first = bisect_right(places, asked.after.order, key=itemgetter(0))
        return [show(key, extent) for _, key, extent in places[first : first + extents_max]]

    def _read(self, select: Selection) -> tuple[Show, list[Placed]]:
        """All that is asked for, in order."""
        shards = frozenset(self._shards)
        numbers = [
            number
            for number in self._contents.holdings.extents(shards)
            if select.has_extent(*self._bounds(number))
        ]
        plan = self._contents.plan(numbers, shards, None)
        extents = ExtentsOfFiles(
            self._compiled, self._all_shards, self._bounds, plan, select, self._held_bytes_max
        )
        reader = FileReader(self._folder, self._rows_max)
        for piece in sorted(plan.pieces, key=lambda each: not each.partial):
            for path in piece.paths:
                for batch in reader.batches(path, _limits(select)):
                    extents.add(piece, batch)
        view = extents.finished()
        return view.shown, sorted(view.places(select), key=itemgetter(0))


def _limits(select: Selection) -> Limits:
    """What the numbers of rows are within that may be asked for."""
    key = hashable_key(select.key) if select.key is not ALL else None
    return {KEY_INT: (key, key)} if type(key) is int and key in INT64 else {}
