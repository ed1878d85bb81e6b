"""Extents of one trigger that wait for the watermark to pass them, and which groups of them.

An extent that has not been passed waits as a whole, so that a batch costs one look-up however many
groups it has. One that has fired and is kept (`accumulating`) waits only for the groups that have
got more segments since, which are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onyx.windows.dues import Dues
from onyx.windows.firing import Number

Keys = dict[Any, None]
"""Group keys in order, as a set that does not depend on how they are hashed."""


class Passing:
    """`listed`: groups are always listed, because the extents are not this trigger's alone."""

    def __init__(self, listed: bool = False) -> None:
        self._listed = listed
        self._dues: Dues[int] = Dues()
        self.waiting: dict[int, Keys | None] = {}
        """Groups that wait, by extent; None: all that the extent has."""
        self.fired: dict[int, None] = {}
        """Extents that have fired and are kept."""
        self.changed: dict[int, None] = {}
        """Those of them that have fired since changes were taken."""

    def touch(self, extent: int, due: Number, keys: Mapping[Any, Any]) -> None:
        """Groups of an extent have got segments."""
        if extent in self.waiting:
            held = self.waiting[extent]
            if held is not None:
                held.update(dict.fromkeys(keys))
            return
        listed = self._listed or extent in self.fired
        self.waiting[extent] = dict.fromkeys(keys) if listed else None
        self._dues.put(extent, due)

    def take(self, watermark: Number) -> Iterator[tuple[int, Keys | None]]:
        """Extents that the watermark has passed, with the groups that have waited."""
        for extent in self._dues.take(watermark):
            yield extent, self.waiting.pop(extent)

    def keep(self, extent: int) -> None:
        """An extent has fired and stays."""
        self.fired[extent] = None
        self.changed[extent] = None

    def forget(self, extent: int) -> None:
        """An extent is gone."""
        self._dues.remove(extent)
        self.waiting.pop(extent, None)
        self.fired.pop(extent, None)
        self.changed.pop(extent, None)

    def settle(self, extent: int, present: Mapping[Any, Any], fired: Mapping[Any, Any]) -> None:
        """As restored: of the groups `present` in an extent, these have fired."""
        self.fired[extent] = None
        held = self.waiting.get(extent, {})
        rest = dict.fromkeys(present if held is None else held)
        left = {key: None for key in rest if key not in fired}
        self.waiting[extent] = left
        if not left:
            del self.waiting[extent]
            self._dues.remove(extent)
