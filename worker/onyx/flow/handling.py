"""What is done with the segments of a batch that fail, besides what flow conditions say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from onyx.flow.batch import Segment
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


def _never(parent: int) -> bool:
    return False


def _travels(segment: Segment) -> Exception | None:
    return None


class Handling(msgspec.Struct, frozen=True):
    """What is done with the segments of a batch that fail, besides what flow conditions say."""

    dead_letter: str | None = None
    """The child that gets dead letters; None: what no condition takes care of ends the job."""
    letter: Letter | None = None
    is_exhausted: Callable[[int], bool] = _never
    """Whether a segment of the batch has no retry left: it has had them, or nobody reads it
    again."""
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
