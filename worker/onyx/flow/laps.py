"""How often segments have gone round a loop, and which may not go round again."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter

import numpy as np

from onyx.base.runs import Numbers, array_of, taken
from onyx.flow.batch import Indices
from onyx.flow.handling import Refused
from onyx.flow.routed import Outgoing
from onyx.flow.segment_failure import Refusal, SegmentFailure


class LapLimit:
    """What may not go back, for one batch, beside what others refuse (`handling.Refused`)."""

    def __init__(self, back: str, laps_max: int, laps: Numbers | None, others: Refused) -> None:
        """
        Args:
            back: the task that segments go back to.
            laps: of the segments of the batch; None: 0 for all.
        """
        self._back = back
        self._laps_max = laps_max
        self._laps = laps
        self._others = others

    def __call__(self, to: Mapping[str, Outgoing]) -> list[SegmentFailure]:
        """The parents of segments that a child cannot be sent."""
        found = dict(self._others(to))
        outgoing = to.get(self._back)
        if outgoing is None or self._laps is None or not len(outgoing):
            return sorted(found.items(), key=itemgetter(0))
        tired = np.flatnonzero(array_of(self._laps) >= self._laps_max)
        if outgoing.parents is not None:
            tired = np.intersect1d(tired, outgoing.parents)
        for parent in tired.tolist():
            found.setdefault(parent, self._refusal())
        return sorted(found.items(), key=itemgetter(0))

    def _refusal(self) -> Refusal:
        return Refusal(
            f"a segment has gone back to {self._back} as often as it may, lapsMax: "
            f"{self._laps_max:,}"
        )


def laps_of(laps: Numbers | None, many: int, parents: Indices | None, more: int) -> Numbers | None:
    """The laps of what was made of a batch.

    Args:
        laps: of the batch, which has so many segments.
        parents: of each segment that was made; None: i-th of the i-th.
        more: how many each of them adds.
    """
    if laps is None and not more:
        return None
    found = np.zeros(many, np.uint64) if laps is None else array_of(laps)
    return (
        taken(found, parents) + np.uint64(more) if parents is not None else found + np.uint64(more)
    )
