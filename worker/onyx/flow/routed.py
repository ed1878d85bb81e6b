"""What routing a batch comes to: for each child what it gets, and what has failed; and what routing
is given beside flow conditions: what is done about failures (`FailureHandling`), and which segments
may not go round a loop once more (`LapLimit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import field
from msgspec.structs import replace

from onyx.base.runs import Numbers, array_of, taken
from onyx.flow.batch import U64, FoundKeys, Indices, Segment, Segments
from onyx.flow.segment import Refusal, SegmentFailure

NOTHING: Indices = np.empty(0, dtype=np.intp)
"""No leaf."""


class Outgoing(msgspec.Struct):
    """What one child gets. Segments may be the very objects that other children get, too."""

    segments: Segments
    parents: Indices | None = None
    """Index in the batch of each one's parent, never falling; None: i-th of the i-th, for all."""
    child_index: Indices | None = None
    """Index among the leaves of the parent, for `child_ids`; None: 0 for all."""
    hashes: U64 | None = None
    """Hashes of the group keys of the segments, where the child is grouped and has several
    peers."""
    keys: FoundKeys | None = None
    """The group keys, where the child is grouped and has one peer."""

    def __len__(self) -> int:
        return len(self.segments)


class Routed(msgspec.Struct):
    """The verdict on a batch."""

    to: dict[str, Outgoing]
    """For every child, in the order of the workflow, what it gets (perhaps nothing)."""
    beside: dict[str, Outgoing] = field(default_factory=dict)
    """What children that get columns get besides: segments made of exceptions, as dicts."""
    loose: list[dict[str, Outgoing]] = field(default_factory=list)
    """What children get that is not accounted for, as `to` and `beside`."""
    retries: list[int] = field(default_factory=list)
    """Parents whose roots are to be read again: do not ack them. Increasing, each once."""
    retries_max: list[int] = field(default_factory=list)
    """For each of them, how often the condition asks for that at most."""
    retry_errors: dict[int, Exception] = field(default_factory=dict)
    """What was raised for those of them for which something was."""
    failures: list[SegmentFailure] = field(default_factory=list)
    """(index of the parent, exception) that nothing took care of; by parent, each once."""
    shared: bool = False
    """Whether a segment goes to several children, who then need copies of their own."""
    withdrawn: list[int] = field(default_factory=list)
    """Parents that failed or are retried: what was made of them counts nowhere. Increasing."""
    letters: list[SegmentFailure] = field(default_factory=list)
    """Failures about which a dead letter is sent, likewise."""
    excepted: list[SegmentFailure] = field(default_factory=list)
    """Failures in whose place a condition for exceptions sends something else, likewise."""
    notes: dict[int, Any] = field(default_factory=dict)
    """What is said of segments to whoever sent them, by parent (`program.outcomes`)."""
    retry_notes: dict[int, Any] = field(default_factory=dict)
    """Why parents are to be read again (`retries`), likewise."""
    unmatched: Indices = field(default_factory=lambda: NOTHING)
    """Leaves that go nowhere because no condition holds for them."""

    def shares_of(self, child: str) -> list[Outgoing]:
        """All that a child gets and is accounted for, in parts that are not empty. A leaf is in one
        of them only."""
        parts = [self.to.get(child), self.beside.get(child)]
        return [part for part in parts if part is not None and len(part)]

    def loose_of(self, child: str) -> list[Outgoing]:
        """All that a child gets and is not accounted for, likewise."""
        parts = [each.get(child) for each in self.loose]
        return [part for part in parts if part is not None and len(part)]

    def parents_elsewhere(self) -> list[int]:
        """Parents of what children get in place of segments that have failed. Increasing."""
        return sorted(each for each, _ in (*self.letters, *self.excepted))

    def of_parents(self, chosen: list[int]) -> Routed:
        """What children get of these parents only, which are a batch of their own: all that there
        is."""

        def moved(outgoing: Outgoing) -> Outgoing:
            assert outgoing.parents is not None, "not all have failed, or in this order"
            parents = np.searchsorted(np.array(chosen), outgoing.parents)
            return replace(outgoing, parents=parents)

        def all_moved(shares: dict[str, Outgoing]) -> dict[str, Outgoing]:
            return {child: moved(each) for child, each in shares.items() if len(each)}

        return Routed(
            all_moved(self.to), all_moved(self.beside), [*map(all_moved, self.loose)],
            shared=self.shared,
        )  # fmt: skip


def with_extra(
    segments: list[Segment], outgoing: Outgoing, extra: list[tuple[int, Segment]]
) -> Outgoing:
    """What a child gets with segments made of exceptions, in order of parent: these are the only
    ones of their parents.

    Args:
        segments: those of `outgoing`.
        extra: each with its parent.
    """
    if not extra:
        return outgoing
    count = len(segments)
    parents = np.arange(count) if outgoing.parents is None else outgoing.parents
    indices = np.zeros(count, np.intp) if outgoing.child_index is None else outgoing.child_index
    parents = np.concatenate((parents, np.array([parent for parent, _ in extra], dtype=np.intp)))
    order = np.argsort(parents, kind="stable")
    segments = segments + [segment for _, segment in extra]
    indices = np.concatenate((indices, np.zeros(len(extra), dtype=np.intp)))
    return Outgoing([segments[i] for i in order.tolist()], parents[order], indices[order])


# --- failures -----------------------------------------------------------------------------------

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


class FailureHandling(msgspec.Struct, frozen=True):
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


# --- laps ---------------------------------------------------------------------------------------


class LapLimit:
    """What may not go back, for one batch, beside what others refuse (`Refused`)."""

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
