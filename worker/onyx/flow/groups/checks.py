"""What the children of a task cannot be sent: segments without a group.

Found where segments come from, whether the next peer is in another process or in this one, and
whether the child has one peer or many: a job does not get right or wrong by where its peers are.
A batch is looked at as a whole, and one by one only if something in it is refused.

The one peer of a child gets the keys with the batch, and need not read them again. (Several peers
do: to split the keys costs as much for the peers that are elsewhere as it saves for one here.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import itemgetter

from onyx.flow.batch import as_dicts
from onyx.flow.formats import DICTS
from onyx.flow.groups.grouping import Grouping
from onyx.flow.routed import Outgoing
from onyx.flow.segment_failure import SegmentFailure


class GroupChecks:
    """The checks of one task."""

    def __init__(
        self,
        groupings: Mapping[str, Grouping],
        several: Collection[str],
    ) -> None:
        """
        Args:
            groupings: of the children that are grouped.
            several: children with several peers, for whom segments are hashed.
        """
        self._groupings = groupings
        self._several = several

    def __call__(self, to: Mapping[str, Outgoing]) -> list[SegmentFailure]:
        """`handling.Refused`; leaves the group keys, or their hashes, in `to`."""
        if not self._groupings:
            return []
        found: dict[int, Exception] = {}
        for child, outgoing in to.items():
            if not len(outgoing) or child not in self._groupings:
                continue
            for index, error in self._of_group(child, outgoing):
                parents = outgoing.parents
                found.setdefault(index if parents is None else int(parents[index]), error)
        return sorted(found.items(), key=itemgetter(0))

    def _of_group(self, child: str, outgoing: Outgoing) -> list[SegmentFailure]:
        grouping, segments = self._groupings[child], outgoing.segments
        try:
            if child in self._several:
                outgoing.hashes = grouping.hashes_of(segments)
            else:
                outgoing.keys = grouping.check(segments)
        except Exception:
            return DICTS.bad(as_dicts(segments), grouping.check)
        return []
