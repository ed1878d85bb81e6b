"""Which files are the state of which extents: what a peer keeps instead of states.

An extent of a shard is the sum of the files that have rows or states of it. By shard, because
shards move between peers, and a file that one peer wrote is then read by several, each for its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from onyx.keystate.extents import Number
from onyx.keystate.records import Records, SpooledPart, append
from onyx.spark.windows.plan import Piece, Ranges, ranges
from onyx.spark.windows.spool import Spool


class StateFile(msgspec.Struct):
    """A file, or the folder of a result."""

    part: SpooledPart
    """With all extents that it has, or those that are known: a file of another peer may have rows
    of extents that went before."""
    shards: frozenset[int]
    """All that it has, if that is known: of files of this peer."""
    own: bool
    """Whether this peer has made it in this allocation version. Others may read older ones too, so
    nobody removes them before the job."""


class Holdings:
    """What is held of one window on one peer."""

    def __init__(self, window: str) -> None:
        self._window = window
        self._sources: dict[str, StateFile] = {}
        self._uses: dict[int, dict[str, frozenset[int]]] = {}
        """By extent, the files with the shards that they count for."""
        self._garbage: list[str] = []

    def __contains__(self, extent: int) -> bool:
        return extent in self._uses

    def add(self, part: SpooledPart, shards: frozenset[int], own: bool) -> None:
        """A file counts for some shards of its extents."""
        source = self._sources.setdefault(part.name, StateFile(part, shards, own))
        if not own:
            every = {*source.part.extents, *part.extents}
            source.part = _with_extents(part, sorted(every))
        for extent in part.extents:
            uses = self._uses.setdefault(extent, {})
            uses[part.name] = uses.get(part.name, frozenset()) | shards

    def extents(self, shards: Collection[int]) -> list[int]:
        """Extents of some shards, in order."""
        wanted = frozenset(shards)
        return sorted(
            extent
            for extent, uses in self._uses.items()
            if any(not wanted.isdisjoint(mine) for mine in uses.values())
        )

    def due(self) -> Number | None:
        """A watermark before which no session fires; None: none waits for one."""
        dues = [each.part.due for each in self._sources.values() if each.part.due is not None]
        return min(dues, default=None)

    def remove(self, extents: Iterable[int], shards: Collection[int]) -> None:
        """Some shards of these extents have nothing any more."""
        gone, names = frozenset(shards), set()
        for extent in extents:
            uses = self._uses.get(extent, {})
            for name, mine in list(uses.items()):
                left = mine - gone
                names.add(name)
                if left:
                    uses[name] = left
                else:
                    del uses[name]
            if not uses:
                self._uses.pop(extent, None)
        self._release(names)

    def _release(self, names: Iterable[str]) -> None:
        """Forget files that count for nothing; those of this peer are garbage then."""
        for name in names:
            source = self._sources.get(name)
            if source is None:
                continue
            if not any(name in self._uses.get(extent, ()) for extent in source.part.extents):
                del self._sources[name]
                if source.own:
                    self._garbage.append(name)

    def emitted(self, name: str) -> None:
        """A result of this peer is emitted: it is garbage unless it counts."""
        if name not in self._sources:
            self._garbage.append(name)

    def take_garbage(self) -> list[str]:
        """Files that nobody needs, once the changes taken last are durable."""
        garbage, self._garbage = self._garbage, []
        return garbage

    def columns(self, extents: Iterable[int]) -> set[str]:
        """Columns that some file of these extents has."""
        names = {name for extent in extents for name in self._uses.get(extent, ())}
        return {column for name in names for column in self._sources[name].part.columns}

    def rows(self, extents: Iterable[int]) -> int:
        """Rows of all files of these extents, whatever extents they are in."""
        names = {name for extent in extents for name in self._uses.get(extent, ())}
        return sum(self._sources[name].part.rows for name in names)

    def pieces(
        self, extents: list[int], shards: Collection[int], folder: Spool
    ) -> tuple[Piece, ...]:
        """What is to be read of these extents, files of which the same is read together."""
        wanted, all_ranges = frozenset(shards), ranges(extents)
        found: dict[tuple[bool, bool, bool, tuple[int, ...] | None, Ranges | None], list[str]] = {}
        for name, by_shards in self._counting(extents, wanted).items():
            source, chosen = self._sources[name], set(extents)
            path = folder.path(name)
            for mine, numbers in by_shards.items():
                whole = source.own and mine == source.shards
                within: Ranges | None = ranges(numbers)
                if source.own and len(numbers) == len(source.part.extents):
                    within = None
                elif source.own and len(numbers) == len(chosen.intersection(source.part.extents)):
                    within = all_ranges  # of most files, which are then read together
                key = (
                    source.part.partial,
                    source.part.emptied,
                    source.part.unfired,
                    None if whole else tuple(sorted(mine)),
                    within,
                )
                found.setdefault(key, []).append(path)
        return tuple(Piece(tuple(sorted(paths)), *read) for read, paths in found.items())

    def _counting(
        self, extents: list[int], wanted: frozenset[int]
    ) -> dict[str, dict[frozenset[int], list[int]]]:
        """By file and shards, the extents that it counts for."""
        found: dict[str, dict[frozenset[int], list[int]]] = {}
        for extent in extents:
            for name, shards in self._uses.get(extent, {}).items():
                mine = shards & wanted
                if mine:
                    found.setdefault(name, {}).setdefault(mine, []).append(extent)
        return found

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the files of some shards."""
        wanted = frozenset(shards)
        found: dict[tuple[str, int], list[int]] = {}
        for extent, uses in sorted(self._uses.items()):
            for name, mine in uses.items():
                for shard in mine & wanted:
                    found.setdefault((name, shard), []).append(extent)
        for (name, shard), extents in found.items():
            append(records, shard, _with_extents(self._sources[name].part, extents))

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, whose files stay."""
        for source in self._sources.values():
            source.own = False
        self.remove(list(self._uses), shards)


def _with_extents(part: SpooledPart, extents: Collection[int]) -> SpooledPart:
    return replace(part, extents=list(extents))
