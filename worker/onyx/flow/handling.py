"""What is done with the segments of a batch that fail, besides what flow conditions say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onyx.flow.batch import Mask, Segment
from onyx.flow.routed import Outgoing
from onyx.flow.segment_failure import SegmentFailure

Letter = Callable[[int, Exception], Segment]
"""The dead letter about a segment of the batch, by its index."""
Refused = Callable[[Mapping[str, Outgoing]], list[SegmentFailure]]
"""The parents of segments that a child cannot be sent, for each child; each parent once, in
order."""
Travels = Callable[[Segment], Exception | None]
"""Why a segment that a condition has made cannot be sent to anybody; None: it can."""


def _nothing_refused(to: Mapping[str, Outgoing]) -> list[SegmentFailure]:
    return []


def _travels(segment: Segment) -> Exception | None:
    return None


@dataclass(frozen=True, slots=True)
class Handling:
    """What is done with the segments of a batch that fail, besides what flow conditions say."""

    dead_letter: str | None = None
    """The child that gets dead letters; None: what no condition takes care of ends the job."""
    letter: Letter | None = None
    exhausted: Mask | None = None
    """Segments of the batch that may not be retried again; None: all may."""
    refused: Refused = _nothing_refused
    travels: Travels = _travels

    def sent(self, segment: Segment) -> Segment:
        """The segment that a condition has made.

        Raises:
            Exception: it cannot travel.
        """
        error = self.travels(segment)
        if error is not None:
            raise error
        return segment

    def is_exhausted(self, parent: int) -> bool:
        """Whether a segment of the batch has no retry left."""
        return self.exhausted is not None and bool(self.exhausted[parent])
