"""What a function with state has made of segments that may come again: in a loop.

What others make begins new trees, so nobody asks for it again. In a loop it goes on in the tree of
the segment that it was made of: laps, ends and epochs are those of any function then. A segment
that comes again must not be called for again, as its group has another state now, but what was made
of it may be lost. So it is state like any other, by group, until no attempt of the segment follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onyx.codec.segments import decode, encode
from onyx.flow.batch import Segment
from onyx.keystate.names import MADE
from onyx.ledger.applied import above
from onyx.operators.keyed.store import KeyedStore

Lineage = tuple[int, int]
"""Root and id of a segment, as of its first attempt."""


class MadeBefore:
    """By group and segment, what was made of it, as bytes: functions behind may change segments."""

    def __init__(self, store: KeyedStore) -> None:
        self._made = store.maps(MADE)
        self._of_root: dict[int, list[tuple[Any, str]]] = {}
        """Groups and items, by the root of the segment."""
        store.upon_restored(self._restored)

    def keep(self, group: Any, of: Lineage, segments: Sequence[Segment]) -> None:
        """So much was made of a segment."""
        if segments:
            item = _item(of)
            self._made.set(group, item, encode(list(segments)))
            self._of_root.setdefault(of[0], []).append((group, item))

    def of(self, group: Any, of: Lineage) -> list[Segment]:
        """What was made of a segment that has been applied."""
        data = self._made.get(group).get(_item(of))
        return [] if data is None else decode(data)

    def forget(self, frontiers: Mapping[int, int]) -> None:
        """Nothing below these positions of their partitions comes again."""
        roots = np.fromiter(self._of_root, np.uint64, len(self._of_root))
        for root in roots[~above(frontiers, roots)].tolist() if len(roots) else ():
            for group, item in self._of_root.pop(root):
                self._made.discard(group, item)

    def _restored(self) -> None:
        for group, made in self._made.items():
            for item in made:
                root, _, _ = item.partition(".")
                self._of_root.setdefault(int(root), []).append((group, item))


def _item(of: Lineage) -> str:
    return f"{of[0]}.{of[1]}"
