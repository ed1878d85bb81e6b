"""When a trigger fires: the rules, without the state that they are applied to.

A trigger looks at some of these events, and at every extent of its window when nothing is said:

* `segment`: each segment counts, by group; every so many it fires, for the extents of that segment,
  or with `fireAllExtents` for all of the group.
* `punctuation`: as `segment`, when the user's predicate says so, which is asked once a segment.
* `timer`: every period, by shard, from the first segment on.
* `watermark`: when nothing more is expected for an extent: the watermark is past its last place
  (and the delay). A session is over when the watermark is past its gap. An extent fires again when
  it has got more segments since, with the next watermark.
* `percentile-watermark`: the same, when the watermark has reached a share of the extent.
* The user's own: segments, watermarks, the end, and every `period` if it has one.

All fire once more when the job is completed, the user's own if they say so.

Where no input of the job assigns watermarks, the segments themselves are the watermark: the
greatest place seen by a shard. With `fireAllExtents`, and for `percentile-watermark`, the rule is
then that of 0.9: each segment is compared with extents (its own, or all of the group), which fire
as often as a segment lies at their end or share, or beyond. (Without `fireAllExtents`, a
`watermark` trigger of 0.9 never fired.)

After firing, a refinement changes the state. `discarding` sets it back to the first state, as the
guide says (0.9 left nil, from which the next segment began anew). An extent that a `watermark`
trigger discards is forgotten altogether: nothing more is expected for it, and a segment that comes
in spite of that begins it anew all the same. Else memory would grow with all that has ever been.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onyx.model.job import Trigger
from onyx.windows.firing import Number
from onyx.windows.user_functions import Call


@dataclass(frozen=True, slots=True)
class Refinement:
    """What becomes of the state of an extent that has fired."""

    discards: bool = False
    """Back to the first state."""
    evicts: bool = False
    """The extent is forgotten."""
    calls: Mapping[str, Call] = field(default_factory=dict)
    """The user's own `create_state_update` and `apply_state_update`, when there are such."""


@dataclass(frozen=True, slots=True)
class CompiledTrigger:
    """A trigger ready to run."""

    trigger: Trigger
    name: str
    """What its state is stored under."""
    kind: str
    """`segment`, `punctuation`, `timer`, `watermark`, `percentile-watermark` or `own`."""
    refinement: Refinement
    threshold: int = 0
    period_ms: int | None = None
    delay: int = 0
    share: float | None = None
    pred: Call | None = None
    calls: Mapping[str, Call] = field(default_factory=dict)
    """The user's own `init_state`, `next_state` and `trigger_fire`."""
    by_watermark: bool = False
    """Whether it fires when the watermark passes an extent."""
    by_segment: bool = False
    """Whether it looks at each segment."""

    @property
    def forgets(self) -> bool:
        """Whether extents that the watermark has passed are gone after firing."""
        refinement = self.refinement
        return refinement.evicts or (refinement.discards and self.kind == "watermark")

    def due(self, lower: Number, upper: Number, gap: Number) -> Number:
        """The watermark at which an extent fires; `gap` is that of a session, else 0.

        One more than the last place, as the watermark must be past it and places may be fractions.
        """
        if self.share is not None:
            return lower + self.share * (upper - lower)
        return upper + gap + self.delay + 1

    def reached(self, place: Number, lower: Number, upper: Number) -> bool:
        """Whether a segment at `place` makes an extent fire that is compared with segments."""
        if self.share is None:
            return place >= upper
        return place >= lower + self.share * (upper - lower)


def counted(state: int, threshold: int) -> int:
    """The count of a segment trigger after one more segment; it fires at `threshold`."""
    return state % threshold + 1


def timer_due(due_ms: int, now_ms: int) -> bool:
    """Whether a timer fires: strictly after its time. Its next time is `now_ms` plus the period."""
    return now_ms > due_ms
