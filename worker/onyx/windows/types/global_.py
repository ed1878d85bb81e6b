"""Window type `global`: one extent without an end, which no watermark passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.windows.assigning.assigner import OneExtent
from onyx.windows.types.extents import OnPeer
from onyx.windows.types.numbered import NumberedExtents


class GlobalExtents(NumberedExtents):
    """Segments need no coordinate."""

    bounded = False

    def __init__(self, on_peer: OnPeer) -> None:
        super().__init__(on_peer, OneExtent())

    def look_up(self, keys: Sequence[Any]) -> list[Any]:
        """The state of each of some groups, or GONE."""
        return self.get_all(keys, OneExtent.NUMBER)
